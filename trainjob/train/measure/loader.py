"""Measures how fast samples arrive, without training. Rank 0 writes measurement.json.

    python -m trainjob.train.measure.loader --seconds 2 --workers 0 2 4 -- RUN_DIR

All ranks load at once, so that they compete for cores and disk as in training.
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import Dict, List, Sequence

from trainjob.contract import clock
from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths
from trainjob.records.measures import write_measurement
from trainjob.train import engines, stopping
from trainjob.train import world as worlds
from trainjob.train.opening import Opened, RankRun, open_task, task_settings
from trainjob.train.recording.startup import Startup
from trainjob.train.samples.batches import blocks
from trainjob.train.stalling import Watch

_LIMIT_S = 1800.0  # how long a rank waits for another one
_FOREVER = 1 << 40  # updates, so that only the clock ends the measurement

Figures = Dict[str, object]


def main(arguments: Sequence[str]) -> int:
    """Measure; return the exit code. A user's mistake goes to stderr."""
    parser = argparse.ArgumentParser(prog="loader")
    parser.add_argument("--seconds", type=float, default=2.0, help="of each measurement")
    parser.add_argument("--workers", type=int, nargs="+", default=[0])
    parser.add_argument("run_dir", metavar="RUN_DIR")
    options = parser.parse_args(arguments)
    paths = RunPaths(os.path.abspath(options.run_dir))
    try:
        settings = task_settings(paths)
        if paths.project.is_dir():
            os.chdir(str(paths.project))
        world = engines.join(settings.engine, worlds.place(os.environ), os.environ, _LIMIT_S)
        run = RankRun(
            paths, settings, 1, world, os.environ, Watch(paths, world, 1, settings.stall_timeout_s), Startup(os.environ)
        )
        measured = loading(run, open_task(run), options.workers, options.seconds)
    except UserError as error:
        sys.stderr.write("trainjob: %s\n" % error)
        return 1
    if world.rank == 0:
        write_measurement(paths, measured)
    world.close()
    return 0


def loading(run: RankRun, opened: Opened, numbers: Sequence[int], seconds: float) -> Figures:
    """Return the samples a second of all ranks, without training, for each number of workers."""
    rows: List[Figures] = []
    for workers in numbers:
        upcoming = blocks(opened.train, opened.counts, run.world.rank, 0, _FOREVER, workers)
        next(upcoming)  # starts the workers
        run.world.sum([0.0])  # so that all ranks start together
        samples, start = 0, clock.monotonic()
        while clock.monotonic() - start < seconds:
            samples += next(upcoming).updates * opened.counts.share
        rate = samples / (clock.monotonic() - start)
        upcoming.close()
        total = run.world.sum([rate])[0]
        rows.append({"workers": workers, "samples_per_s": total})
    return {"world_size": run.world.size, "rows": rows}


if __name__ == "__main__":
    stopping.leave(main(sys.argv[1:]))
