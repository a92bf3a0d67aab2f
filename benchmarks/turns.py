"""Turns: the sides of a comparison take turns in the same processes, so that whatever else the machine does meets all.

A benchmark starts its own file once a rank; each rank opens what it compares and times the turns of every side.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.support import runs_at_work

NETS = {"40 k": (100, 3), "7.9 M": (500, 31)}  # parameters: width, hidden layers
MICRO_BATCH = 32
_LEAST_TURNS = 3

Side = Callable[[int], None]  # trains for so many updates


class Turn(NamedTuple):
    """One turn of one side, as rank 0 saw it."""

    updates: int
    seconds: float
    core_seconds: float  # of all threads of the process

    def each(self) -> float:
        """Return the seconds of one update."""
        return self.seconds / self.updates


def parser(description: str | None) -> argparse.ArgumentParser:
    """Return what all benchmarks of turns are asked with."""
    made = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--instances", type=int, default=2)
    made.add_argument("--seconds", type=float, default=20, help="of turns, for each net")
    made.add_argument("--folder", help=argparse.SUPPRESS)
    made.add_argument("--net", help=argparse.SUPPRESS)
    return made


def in_ranks(script: str, net: str, asked: argparse.Namespace) -> dict[str, Any]:
    """Return what rank 0 of `script --folder …` wrote, run by as many processes as are asked for."""
    options = [word for name, value in vars(asked).items() if value is not None for word in (f"--{name}", str(value))]
    with tempfile.TemporaryDirectory() as folder:
        paths = runs_at_work.make_run(Path(folder) / "run", **settings(net, asked.instances))
        command = [sys.executable, script, *options, "--net", net, "--folder", str(paths.folder)]
        codes = runs_at_work.finish(runs_at_work.start(paths, asked.instances, command=command), 600)
        if any(codes):
            sys.exit(runs_at_work.log(paths))
        results: dict[str, Any] = json.loads((paths.folder / "results.json").read_text())
        return results


def settings(net: str, instances: int, **changes: Any) -> dict[str, Any]:
    """Return the settings of a run without an end, whose weights hardly move."""
    width, layers = NETS[net]
    return {
        "task": "ffnet-toy",
        "task_options": {"width": width, "layers": layers},
        "instances": instances,
        "micro_batch": MICRO_BATCH,
        "updates": 10**9,
        "schedule": "constant",
        "learning_rate": 0.0001,
        **changes,
    }


def join(folder: Path) -> Any:
    """Return the world of the ranks that work in `folder`."""
    from trainjob.train import world as worlds

    return worlds.join(worlds.place(os.environ), os.environ, 600)


def open_context(folder: Path, world: Any, **changes: Any) -> Any:
    """Return all that our loop works with, as a run in `folder` would have it."""
    from trainjob.contract.paths import RunPaths
    from trainjob.train.opening import RankRun, open_context
    from trainjob.train.recording.startup import Startup
    from trainjob.train.stalling import Watch

    paths = RunPaths(folder)
    asked = runs_at_work.settings(**changes)
    run = RankRun(paths, asked, 1, world, os.environ, Watch(paths, world, 1, 600), Startup(os.environ))
    return open_context(run)[0]


def ours(context: Any, start: int = 0, loop_type: Any = None) -> Side:
    """Return our loop with all that it does on the way: metrics, progress, requests to stop, averaged loss."""
    from trainjob.train.loop import Loop

    made = [start]

    def train(updates: int) -> None:
        loop = (loop_type or Loop)(context._replace(end=made[0] + updates), made[0])
        loop._save_durably = lambda: None  # type: ignore[method-assign] # the checkpoint at the end is no part of an update
        loop.run()
        made[0] += updates

    return train


def taken(world: Any, sides: dict[str, Side], updates: dict[str, int], enough_s: float) -> dict[str, list[Turn]]:
    """Return every side's turns, three at least, and more until `enough_s` are over."""
    found: dict[str, list[Turn]] = {name: [] for name in sides}
    for name, train in sides.items():  # warms up
        timed(world, train, updates[name])
    limit = time.monotonic() + enough_s
    while len(found[next(iter(sides))]) < _LEAST_TURNS or world.from_first(int(time.monotonic() < limit)):
        for name, train in sides.items():
            found[name].append(timed(world, train, updates[name]))
    return found


def timed(world: Any, train: Side, updates: int) -> Turn:
    world.from_first(0)  # no rank begins before all are there
    start, cores = time.perf_counter(), time.process_time()
    train(updates)
    world.from_first(0)
    return Turn(updates, time.perf_counter() - start, time.process_time() - cores)


def end(world: Any, folder: Path, results: dict[str, Any]) -> None:
    """Write the results on rank 0, and end this process."""
    if world.rank == 0:
        (folder / "results.json").write_text(json.dumps(results))
    sys.stdout.flush()
    os._exit(0)
