"""How fast one instance trains when its samples are there already: what its devices could take.

    python -m trainjob.train.measure.appetite --seconds 2 RUN_DIR

Started by launch.py as one rank. It trains on one block in memory again and again, and writes measurement.json.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Sequence, Tuple

from trainjob.contract.errors import UserError
from trainjob.contract.files import write_json
from trainjob.contract.paths import RunPaths
from trainjob.train import engines
from trainjob.train import world as worlds
from trainjob.train.batches import Block, blocks
from trainjob.train.engines.base import Engine, Flags
from trainjob.train.measure.collective import MEASUREMENT
from trainjob.train.measure.loader import settings_of
from trainjob.train.opening import Run, build_engine, open_task
from trainjob.train.stalling import Watch


def main(arguments: Sequence[str]) -> int:
    """Measure; return 0."""
    asked = _parse(arguments)
    paths = RunPaths(Path(os.path.abspath(asked.run_dir)))
    try:
        settings = settings_of(paths)
        world = engines.join(settings.engine, worlds.place(os.environ), os.environ, 600.0)
        run = Run(paths, settings, 1, world, os.environ, Watch(paths, world, 1, settings.stall_timeout_s))
        rate = _samples_per_s(run, asked.seconds)
    except UserError as error:
        sys.stderr.write("trainjob: %s\n" % error)
        return 1
    if world.rank == 0:
        write_json(paths.folder / MEASUREMENT, {"samples_per_s": rate})
    world.close()
    return 0


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="appetite")
    parser.add_argument("--seconds", type=float, default=2.0, help="after a warm-up of a quarter of that")
    parser.add_argument("run_dir", metavar="RUN_DIR")
    return parser.parse_args(arguments)


def _samples_per_s(run: Run, seconds: float) -> float:
    opened = open_task(run)
    engine = build_engine(run, opened)
    upcoming = blocks(opened.train, opened.counts, run.world.rank, 0, opened.counts.device_iterations)
    block = next(upcoming)
    upcoming.close()
    _train(engine, block, seconds / 4)  # the first updates find caches cold and allocate
    made, taken = _train(engine, block, seconds)
    return made * opened.counts.global_batch / taken


def _train(engine: Engine, block: Block, seconds: float) -> Tuple[int, float]:
    """Return the updates made in about `seconds`, and the seconds they took: each block's outcome is waited for."""
    made, start = 0, time.perf_counter()
    while made == 0 or time.perf_counter() - start < seconds:
        engine.train(block, Flags()).read()
        made += block.updates
    return made, time.perf_counter() - start


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
