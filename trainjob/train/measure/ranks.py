"""What measurements of a job have in common: its ranks meet, measure, and rank 0 writes what they measured."""

from __future__ import annotations

import os
import sys
from typing import Any, Callable, Dict

from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths
from trainjob.records import job as jobs
from trainjob.records.job import TrainSettings
from trainjob.records.measures import write_measurement
from trainjob.train import engines
from trainjob.train import world as worlds
from trainjob.train.opening import Run
from trainjob.train.stalling import Watch


def measure(run_dir: str, work: Callable[[Run], Dict[str, Any]], timeout_s: float = 600.0) -> int:
    """Do `work` on every rank and write what rank 0 returns. Return the exit code; a user's mistake goes to stderr.

    `timeout_s` bounds how long a rank waits for another one.
    """
    paths = RunPaths(os.path.abspath(run_dir))
    try:
        settings = _settings(paths)
        world = engines.join(settings.engine, worlds.place(os.environ), os.environ, timeout_s)
        measured = work(Run(paths, settings, 1, world, os.environ, Watch(paths, world, 1, settings.stall_timeout_s)))
    except UserError as error:
        sys.stderr.write("trainjob: %s\n" % error)
        return 1
    if world.rank == 0:
        write_measurement(paths, measured)
    world.close()
    return 0


def _settings(paths: RunPaths) -> TrainSettings:
    settings = jobs.read(paths.job).train
    if settings is None:
        raise UserError("%s describes a command, and only a task can be measured" % paths.job, "give --task")
    if paths.project.is_dir():
        os.chdir(str(paths.project))
    return settings
