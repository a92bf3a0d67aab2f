"""Measures a job on its own ranks without training it. Rank 0 writes measurement.json.

    python -m trainjob.train.measure.job loader --seconds 2 --workers 0 2 4 -- RUN_DIR

`loader`: how fast samples arrive, by number of loader workers, on all ranks at once, so that they compete for cores and
disk as in training. `training-rate`: how fast one instance alone trains on one block in memory, which is what its
devices could take. `step`: what makes an update faster. In a round of it, the plain engine and one variation make the
same number of updates in memory, one after the other, so that a machine that slows down for a while slows down both.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys
from typing import Callable, Dict, List, Mapping, Sequence, Tuple

from trainjob.contract import clock
from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths
from trainjob.records.measures import PLAIN_STEP, STEP_VARIATIONS, write_measurement
from trainjob.train import engines, stopping
from trainjob.train import world as worlds
from trainjob.train.engines.base import Engine
from trainjob.train.opening import Opened, Run, build_engine, open_task, task_settings
from trainjob.train.recording.startup import Startup
from trainjob.train.samples.batches import Block, blocks
from trainjob.train.stalling import Watch
from trainjob.train.stopping import Flags

_LIMIT_S = 1800.0  # how long a rank waits for another one: a variation may compile
_FOREVER = 1 << 40  # updates, so that only the clock ends the measurement
_WARM_UP_UPDATES = 3  # the first compiles, and allocates memory

Figures = Dict[str, object]


def main(arguments: Sequence[str]) -> int:
    """Measure; return the exit code. A user's mistake goes to stderr."""
    parser = argparse.ArgumentParser(prog="job")
    parser.add_argument("measurement", choices=MEASUREMENTS)
    parser.add_argument(
        "--seconds", type=float, default=2.0, help="of each measurement by `loader` and `training-rate`"
    )
    parser.add_argument("--workers", type=int, nargs="+", default=[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--round-s", type=float, default=0.3, help="length of either half of a round")
    parser.add_argument("--variations", nargs="+", default=list(STEP_VARIATIONS))
    parser.add_argument("run_dir", metavar="RUN_DIR")
    options = parser.parse_args(arguments)
    paths = RunPaths(os.path.abspath(options.run_dir))
    try:
        settings = task_settings(paths)
        if paths.project.is_dir():
            os.chdir(str(paths.project))
        world = engines.join(settings.engine, worlds.place(os.environ), os.environ, _LIMIT_S)
        run = Run(
            paths, settings, 1, world, os.environ, Watch(paths, world, 1, settings.stall_timeout_s), Startup(os.environ)
        )
        measured = MEASUREMENTS[options.measurement](run, open_task(run), options)
    except UserError as error:
        sys.stderr.write("trainjob: %s\n" % error)
        return 1
    if world.rank == 0:
        write_measurement(paths, measured)
    world.close()
    return 0


def loader(run: Run, opened: Opened, options: argparse.Namespace) -> Figures:
    """Return the samples a second of all ranks, without training, for each number of workers."""
    rows: List[Figures] = []
    for workers in options.workers:
        upcoming = blocks(opened.train, opened.counts, run.world.rank, 0, _FOREVER, workers)
        next(upcoming)  # starts the workers
        run.world.sum([0.0])  # so that all ranks start together
        samples, start = 0, clock.monotonic()
        while clock.monotonic() - start < options.seconds:
            samples += next(upcoming).updates * opened.counts.share
        rate = samples / (clock.monotonic() - start)
        upcoming.close()
        total = run.world.sum([rate])[0]
        each = total / run.world.size
        rows.append({"workers": workers, "samples_per_s": total, "samples_per_s_per_instance": each})
    return {"world_size": run.world.size, "rows": rows}


def training_rate(run: Run, opened: Opened, options: argparse.Namespace) -> Figures:
    """Return the samples a second that this instance trains on when it never waits for them."""
    engine, block = build_engine(run, opened), _first_block(run, opened, opened.counts.device_iterations)

    def train(seconds: float) -> Tuple[int, float]:
        """Return the updates made in about `seconds`, and the seconds they took."""
        made, start = 0, clock.monotonic()
        while made == 0 or clock.monotonic() - start < seconds:
            engine.train(block, Flags())()
            made += block.updates
        return made, clock.monotonic() - start

    train(options.seconds / 4)  # the first updates allocate memory and fill caches
    made, taken = train(options.seconds)
    return {"samples_per_s": made * opened.counts.global_batch / taken}


def step(run: Run, opened: Opened, options: argparse.Namespace) -> Figures:
    """Return for each variation the seconds of an update, round by round, and of the plain one beside it."""
    block = _first_block(run, opened, 1)

    def seconds_of(engine: Engine, updates: int) -> float:
        """Return the seconds that each update takes, waiting for the outcome of each."""
        start = clock.monotonic()
        for _ in range(updates):
            engine.train(block, Flags())()
        return (clock.monotonic() - start) / updates

    def warmed_up(changes: Mapping[str, object]) -> Engine:
        changed = dataclasses.replace(run.settings, **{**PLAIN_STEP, **changes})
        engine = build_engine(run._replace(settings=changed), opened)
        seconds_of(engine, _WARM_UP_UPDATES)
        return engine

    plain = warmed_up({})
    updates = run.world.from_first(max(1, int(options.round_s / seconds_of(plain, _WARM_UP_UPDATES))))
    rows: List[Figures] = []
    for name in options.variations:
        taken: Dict[str, List[float]] = {"plain_s": [], "varied_s": []}
        why = ""
        try:
            pair = [("plain_s", plain), ("varied_s", warmed_up(STEP_VARIATIONS[name]))]
            for number in range(options.rounds):
                # In alternating order: the second of a pair may find warmer caches.
                for key, engine in pair[:: 1 if number % 2 else -1]:
                    taken[key].append(seconds_of(engine, updates))
        except UserError as error:  # the same on all ranks: it depends on torch and the model
            why = error.text
        rows.append({"name": name, **taken, "why": why})
    return {"world_size": run.world.size, "rows": rows}


def _first_block(run: Run, opened: Opened, updates: int) -> Block:
    upcoming = blocks(opened.train, opened.counts, run.world.rank, 0, updates)
    block = next(upcoming)
    upcoming.close()
    return block


MEASUREMENTS: Dict[str, Callable[[Run, Opened, argparse.Namespace], Figures]] = {
    "loader": loader,
    "training-rate": training_rate,
    "step": step,
}

if __name__ == "__main__":
    stopping.leave(main(sys.argv[1:]))
