"""Measures how fast one instance trains when it never waits for samples: what its devices could take.

    python -m trainjob.train.measure.training_rate --seconds 2 RUN_DIR

Runs as one rank. It trains on one block in memory again and again, and writes measurement.json.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import Sequence, Tuple

from trainjob.train import stopping
from trainjob.train.engines.base import Engine, Flags
from trainjob.train.measure.ranks import measure
from trainjob.train.opening import Run, build_engine, open_task
from trainjob.train.samples.batches import Block, blocks


def main(arguments: Sequence[str]) -> int:
    """Measure; return 0."""
    options = _parse(arguments)
    return measure(options.run_dir, lambda run: {"samples_per_s": _samples_per_s(run, options.seconds)})


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="training_rate")
    parser.add_argument("--seconds", type=float, default=2.0, help="after a warm-up of a quarter of that")
    parser.add_argument("run_dir", metavar="RUN_DIR")
    return parser.parse_args(arguments)


def _samples_per_s(run: Run, seconds: float) -> float:
    opened = open_task(run)
    engine = build_engine(run, opened)
    upcoming = blocks(opened.train, opened.counts, run.world.rank, 0, opened.counts.device_iterations)
    block = next(upcoming)
    upcoming.close()
    _train(engine, block, seconds / 4)  # the first updates allocate memory and fill caches
    made, taken = _train(engine, block, seconds)
    return made * opened.counts.global_batch / taken


def _train(engine: Engine, block: Block, seconds: float) -> Tuple[int, float]:
    """Return the updates made in about `seconds`, and the seconds they took, waiting for each block's outcome."""
    made, start = 0, time.perf_counter()
    while made == 0 or time.perf_counter() - start < seconds:
        engine.train(block, Flags()).read()
        made += block.updates
    return made, time.perf_counter() - start


if __name__ == "__main__":
    stopping.leave(main(sys.argv[1:]))
