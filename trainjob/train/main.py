"""One rank of a run, in the order it happens."""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path
from typing import List, Mapping, Optional

from trainjob.contract import environment, exits
from trainjob.contract import job as contract_job
from trainjob.contract.errors import UserError
from trainjob.contract.job import TrainSettings
from trainjob.contract.paths import RunPaths
from trainjob.train import engines, resuming, setup
from trainjob.train import world as worlds
from trainjob.train.batches import trial_inputs
from trainjob.train.blame import describe_task_failure
from trainjob.train.checkpoint import CheckpointWriter, remove_left_behind
from trainjob.train.engines.base import Parts
from trainjob.train.loop import STOPPED, Loop, Stage
from trainjob.train.metrics import Recorder
from trainjob.train.progress import Progress
from trainjob.train.schedules import Schedule
from trainjob.train.sources import as_source
from trainjob.train.stopping import Requests, StaleAttempt
from trainjob.train.tasks.loading import load
from trainjob.train.world import World

_DEFAULT_TIMEOUT_SECONDS = 600.0


def main(argv: List[str], environ: Mapping[str, str] = os.environ) -> int:
    """Train as the run directory `argv[1]` says, and return the exit code of this rank."""
    if len(argv) != 2:
        print("usage: python -m trainjob.train RUN_DIR", file=sys.stderr)  # noqa: T201
        return exits.USAGE
    paths = RunPaths(Path(argv[1]).resolve())
    rank = environ.get(environment.RANK, "0")
    try:
        return _run(paths, environ)
    except StaleAttempt as error:
        return _fail("%s of this run is over: a newer one has begun" % error, exits.STALE_ATTEMPT)
    except (UserError, contract_job.ContractError) as error:
        return _fail(str(error))
    except Exception as error:  # noqa: BLE001 - the last one who can say whose error it is
        return _fail_unexpectedly(error, paths, int(rank))


def _run(paths: RunPaths, environ: Mapping[str, str]) -> int:
    settings = _settings(paths)
    here = worlds.place(environ)
    _enter_project(paths)
    attempt = int(environ.get(environment.ATTEMPT) or 1)
    world = worlds.join(here, environ, _DEFAULT_TIMEOUT_SECONDS)
    setup.refuse_other_world(settings, world, paths)
    ending = _train(paths, settings, attempt, world, environ)
    world.close()
    return exits.CHECKPOINTED if ending == STOPPED else exits.DONE


def _settings(paths: RunPaths) -> TrainSettings:
    settings = contract_job.read(paths.job).train
    if settings is None:
        raise UserError("%s is of a command, not of a task: there is nothing to train" % paths.job)
    return settings


def _enter_project(paths: RunPaths) -> None:
    # Where ranks work: a user's task finds its files by relative paths, as at home.
    if paths.project.is_dir():
        os.chdir(str(paths.project))


def _train(
    paths: RunPaths, settings: TrainSettings, attempt: int, world: World, environ: Mapping[str, str]
) -> str:
    task = load(settings.entry, settings.task_options, paths.project)
    data = setup.open_data(task, settings, environ, world.local_rank)
    train = as_source(data.train)
    held_out = None if data.held_out is None else as_source(data.held_out)
    setup.agree_on_data(world, data, len(train))
    counts = setup.count(settings, train)
    planned = setup.planned_updates(settings, counts)
    schedule = Schedule(settings, planned)
    trial = trial_inputs(train, counts)
    model = setup.build_model(task, settings.seed)
    engine = engines.build(Parts(task, model, data.normalise, settings, counts, world, schedule, trial))

    leads = world.rank == 0
    end = setup.end_of_run(planned, environ)
    requests = Requests(paths, attempt)
    progress = Progress(paths, attempt, end, leads)
    if leads:
        requests.refuse_stale()
        remove_left_behind(paths)
    writer = CheckpointWriter(paths, settings.keep_checkpoints, requests.refuse_stale, progress.say)
    start = resuming.resume(paths, engine, settings, counts, world, progress.say)
    if leads:
        progress.say(_first_line(settings, world, start, end))
    recorder = Recorder(paths, attempt, leads, progress.say)
    stage = Stage(
        paths, settings, attempt, counts, end, world, engine, train, held_out, schedule, requests, writer, recorder, progress
    )
    ending = Loop(stage, start).run()
    progress.close()
    return ending


def _first_line(settings: TrainSettings, world: World, start: int, end: int) -> str:
    how = "engine %s on %s, %d instances" % (settings.engine, world.device, world.size)
    origin = "from the checkpoint of update %d" % start if start else "from the beginning"
    return "task %s, %s, %s to update %d" % (settings.task, how, origin, end)


def _fail(message: str, code: int = exits.USER_OR_CLUSTER_CAN_FIX) -> int:
    sys.stdout.flush()
    print("trainjob: %s" % message, file=sys.stderr, flush=True)  # noqa: T201
    return code


def _fail_unexpectedly(error: Exception, paths: RunPaths, rank: int) -> int:
    lost: Optional[str] = worlds.describe_lost_peer(error, rank)
    if lost is not None:
        return _fail(lost)
    code = _fail(describe_task_failure(error, paths))
    traceback.print_exception(type(error), error, error.__traceback__)
    return code
