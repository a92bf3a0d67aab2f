"""Measures how fast a job's data arrives without training: samples/s of every rank, by number of loader workers.

    python -m trainjob.train.measure.loader --seconds 2 --workers 0 2 4 -- RUN_DIR

Runs on every rank, so that ranks compete for cores and disk as in training. Rank 0 writes measurement.json.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any, Dict, Sequence

from trainjob.train import setup, stopping
from trainjob.train.measure.ranks import measure
from trainjob.train.opening import Run
from trainjob.train.samples.arithmetic import Arithmetic
from trainjob.train.samples.batches import blocks
from trainjob.train.samples.sources import Source
from trainjob.train.samples.streams import as_source
from trainjob.train.tasks.loading import load
from trainjob.train.world import World

_FOREVER = 1 << 40  # updates, so that only the clock ends the measurement


def main(arguments: Sequence[str]) -> int:
    """Measure with each number of workers; return 0."""
    options = _parse(arguments)

    def work(run: Run) -> Dict[str, Any]:
        source, counts = _open(run)
        rows = [_row(source, counts, run.world, workers, options.seconds) for workers in options.workers]
        return {"world_size": run.world.size, "rows": rows}

    return measure(options.run_dir, work)


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="loader")
    parser.add_argument(
        "--seconds", type=float, default=2.0, help="of each measurement, after as long a warm-up at most"
    )
    parser.add_argument("--workers", type=int, nargs="+", default=[0])
    parser.add_argument("run_dir", metavar="RUN_DIR")
    return parser.parse_args(arguments)


def _open(run: Run) -> "tuple[Source, Arithmetic]":
    settings = run.settings
    task = load(settings.entry, settings.task_options, run.paths.project)
    source = as_source(setup.open_data(task, settings, run.environ, run.world.local_rank).train, settings.samples)
    return source, setup.count(settings, source)


def _row(source: Source, counts: Arithmetic, world: World, workers: int, seconds: float) -> Dict[str, Any]:
    upcoming = blocks(source, counts, world.rank, 0, _FOREVER, workers)
    next(upcoming)  # starts the workers
    world.sum([0.0])  # so that all ranks start together
    samples, start = 0, time.perf_counter()
    while time.perf_counter() - start < seconds:
        samples += next(upcoming).updates * counts.share
    rate = samples / (time.perf_counter() - start)
    upcoming.close()
    total = world.sum([rate])[0]
    return {"workers": workers, "samples_per_s": total, "samples_per_s_per_instance": total / world.size}


if __name__ == "__main__":
    stopping.leave(main(sys.argv[1:]))
