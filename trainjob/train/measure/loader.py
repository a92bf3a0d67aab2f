"""How fast a job's data comes when nobody trains: samples a second of every rank, by number of loader workers.

    python -m trainjob.train.measure.loader --seconds 2 --workers 0 2 4 -- RUN_DIR

Started by launch.py on every rank, so that ranks contend for cores and disk as they will. Rank 0 writes
measurement.json.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from typing import Any, Dict, Sequence

from trainjob.contract import job as jobs
from trainjob.contract.errors import UserError
from trainjob.contract.files import write_json
from trainjob.contract.job import TrainSettings
from trainjob.contract.paths import RunPaths
from trainjob.train import engines, setup
from trainjob.train import world as worlds
from trainjob.train.arithmetic import Arithmetic
from trainjob.train.batches import blocks
from trainjob.train.choosing import as_source
from trainjob.train.measure.collective import MEASUREMENT
from trainjob.train.sources import Source
from trainjob.train.tasks.loading import load

_FOREVER = 1 << 40  # updates: the clock ends the measurement, not the data


def main(arguments: Sequence[str]) -> int:
    """Measure with each number of workers; return 0."""
    asked = _parse(arguments)
    paths = RunPaths(os.path.abspath(asked.run_dir))
    world = engines.join(settings_of(paths).engine, worlds.place(os.environ), os.environ, 600.0)
    try:
        source, counts = _open(paths, world)
        rows = [_row(source, counts, world, workers, asked.seconds) for workers in asked.workers]
    except UserError as error:
        sys.stderr.write("trainjob: %s\n" % error)
        return 1
    if world.rank == 0:
        write_json(paths.folder / MEASUREMENT, {"world_size": world.size, "rows": rows})
    world.close()
    return 0


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="loader")
    parser.add_argument(
        "--seconds", type=float, default=2.0, help="of each measurement, after as long a warm-up at most"
    )
    parser.add_argument("--workers", type=int, nargs="+", default=[0])
    parser.add_argument("run_dir", metavar="RUN_DIR")
    return parser.parse_args(arguments)


def _open(paths: RunPaths, world: Any) -> "tuple[Source, Arithmetic]":
    settings = settings_of(paths)
    task = load(settings.entry, settings.task_options, paths.project)
    source = as_source(setup.open_data(task, settings, os.environ, world.local_rank).train, settings.samples)
    return source, setup.count(settings, source)


def settings_of(paths: RunPaths) -> TrainSettings:
    """Return the settings of the run's task, and enter its project. Raises UserError for a command."""
    settings = jobs.read(paths.job).train
    if settings is None:
        raise UserError("%s is of a command, not of a task: its data can't be seen from outside" % paths.job)
    if paths.project.is_dir():
        os.chdir(str(paths.project))
    return settings


def _row(source: Source, counts: Arithmetic, world: Any, workers: int, seconds: float) -> Dict[str, Any]:
    upcoming = blocks(source, counts, world.rank, 0, _FOREVER, workers)
    next(upcoming)  # starts the workers
    world.sum([0.0])  # all ranks begin together
    samples, start = 0, time.perf_counter()
    while time.perf_counter() - start < seconds:
        samples += next(upcoming).updates * counts.share
    rate = samples / (time.perf_counter() - start)
    upcoming.close()
    total = world.sum([rate])[0]
    return {"workers": workers, "samples_per_s": total, "samples_per_s_per_instance": total / world.size}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
