"""One rank of a run, in the order it happens."""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from pathlib import Path
from typing import List, Mapping

from trainjob.contract import environment, exits
from trainjob.contract import job as contract_job
from trainjob.contract.attempts import is_stale
from trainjob.contract.errors import UserError
from trainjob.contract.job import TrainSettings
from trainjob.contract.paths import RunPaths
from trainjob.train import engines
from trainjob.train import world as worlds
from trainjob.train.blame import describe_task_failure
from trainjob.train.loop import STOPPED, Loop
from trainjob.train.opening import Run, compile_only, open_stage
from trainjob.train.stalling import Watch, who_hung
from trainjob.train.stopping import StaleAttemptError

# A collective gives up only after the watch has had the time to say which rank is missing.
_LONGER_THAN_A_STALL_S = 60.0
# Compiling for an IPU takes 6 to 10 minutes, in which nothing beats.
_COMPILING_S = {"ipu": 1800.0}


def main(argv: List[str], environ: Mapping[str, str] = os.environ) -> int:
    """Train as the run directory `argv[1]` says, and return the exit code of this rank."""
    if len(argv) != 2:
        print("usage: python -m trainjob.train RUN_DIR", file=sys.stderr)  # noqa: T201
        return exits.USAGE
    paths = RunPaths(Path(argv[1]).resolve())
    try:
        return _run(paths, environ)
    except StaleAttemptError as error:
        return _fail("%s of this run is over: a newer one has begun" % error, exits.STALE_ATTEMPT)
    except (UserError, contract_job.ContractError) as error:
        return _fail(str(error))
    except Exception as error:  # noqa: BLE001 - the last one who can say whose error it is
        return _fail_unexpectedly(error, paths, environ)


def _run(paths: RunPaths, environ: Mapping[str, str]) -> int:
    settings = _settings(paths)
    here = worlds.place(environ)
    attempt = _attempt(environ)
    _enter_project(paths)
    stall_s = settings.stall_timeout_s + _COMPILING_S.get(settings.engine, 0.0)
    world = engines.join(settings.engine, here, environ, stall_s + _LONGER_THAN_A_STALL_S)
    with Watch(paths, world, attempt, stall_s) as watch:
        run = Run(paths, settings, attempt, world, environ, watch)
        if environ.get(environment.COMPILE_ONLY):
            return compile_only(run)
        stage, start = open_stage(run)
        with contextlib.closing(stage):
            ending = Loop(stage, start).run()
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


def _fail(message: str, code: int = exits.USER_OR_CLUSTER_CAN_FIX) -> int:
    sys.stdout.flush()
    print("trainjob: %s" % message, file=sys.stderr, flush=True)  # noqa: T201
    return code


def _fail_unexpectedly(error: Exception, paths: RunPaths, environ: Mapping[str, str]) -> int:
    lost = worlds.describe_lost_peer(error, int(environ.get(environment.RANK) or 0))
    if lost is not None:
        return _fail_without_the_others(lost, paths, _attempt(environ))
    traceback.print_exception(type(error), error, error.__traceback__)
    # Last, because a status shows the last lines, and a traceback can be longer than these.
    return _fail(describe_task_failure(error, paths))


def _fail_without_the_others(lost: str, paths: RunPaths, attempt: int) -> int:
    if is_stale(paths, attempt):
        return _fail("%s; a newer attempt has begun" % lost, exits.STALE_ATTEMPT)
    hung = who_hung(paths, attempt)
    return _fail("%s: %s" % (lost, hung or "that rank ended or hangs, its log says why"))


def _attempt(environ: Mapping[str, str]) -> int:
    return int(environ.get(environment.ATTEMPT) or 1)
