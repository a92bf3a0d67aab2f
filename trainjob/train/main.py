"""One rank of a run, from its command line to its exit code."""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from pathlib import Path
from typing import List, Mapping, Optional

from trainjob.contract import environment, exits
from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths, with_home
from trainjob.data.manifest import MADE_UP, PYTHON_DOCS, find
from trainjob.data.staging import Staged, stage
from trainjob.records import job as contract_job
from trainjob.records.attempts import is_stale
from trainjob.records.job import TrainSettings
from trainjob.train import engines
from trainjob.train import world as worlds
from trainjob.train.engines.trial import HINT
from trainjob.train.loop import STOPPED, Loop
from trainjob.train.opening import RankRun, compile_only, open_context, task_settings
from trainjob.train.recording.startup import Startup
from trainjob.train.stalling import Watch, who_hung
from trainjob.train.stopping import StaleAttemptError

# A collective gives up only after the watch has had time to report which rank is missing.
_LONGER_THAN_A_STALL_S = 60.0
# Compiling for an IPU takes 6 to 10 minutes, and torch.compile minutes for a large model, without a sign of progress.
_COMPILING_S = {"ipu": 1800.0}
_COMPILING_FOR_TORCH_S = 900.0
# Hosts that have their copy of the data wait for the slowest to meet them.
_STAGING_S = 6 * 3600.0
_OURS = str(Path(__file__).resolve().parent.parent)


def main(argv: List[str], environ: Mapping[str, str] = os.environ) -> int:
    """Train as the run directory `argv[1]` specifies, and return the exit code of this rank."""
    if len(argv) != 2:
        print("usage: python -m trainjob.train RUN_DIR", file=sys.stderr)  # noqa: T201
        return exits.USAGE
    paths = RunPaths(Path(argv[1]).resolve())
    try:
        return _run(paths, environ)
    except StaleAttemptError as error:
        return _fail("%s of this run is over, because a newer one has started" % error, exits.STALE_ATTEMPT)
    except (UserError, contract_job.ContractError) as error:
        return _fail(str(error))
    except Exception as error:  # noqa: BLE001 - the last place that can name the task at fault
        return _fail_unexpectedly(error, paths, environ)


def _run(paths: RunPaths, environ: Mapping[str, str]) -> int:
    startup = Startup(environ)
    startup.end("imports")
    settings, code = task_settings(paths), exits.USER_OR_CLUSTER_CAN_FIX
    copy = _staged(settings, environ)
    startup.end("data")
    if copy is None:
        return _train(paths, settings, environ, startup)
    try:
        code = _train(paths, settings, {**environ, "TRAINJOB_DATA_DIR": str(copy.data_dir)}, startup)
    finally:
        copy.release(remove=settings.remove_staged and code == exits.DONE)
    return code


def _staged(settings: TrainSettings, environ: Mapping[str, str]) -> Optional[Staged]:
    """Return this host's copy of the data set; None if none is wanted, or the data set has no files."""
    is_rehearsal = environment.redirect(environ, "TRAINJOB_PROLOGUE") == "skip"  # which has none of the site's disks
    if settings.stage is None or is_rehearsal:
        return None
    if settings.data is None:
        raise UserError("the job stages its data set and names none", "give --data NAME, or leave out --stage")
    folder = environment.redirect(environ, "TRAINJOB_DATA_DIR")
    data_dir = Path(folder) if folder else None
    if settings.data in (MADE_UP, PYTHON_DOCS) and find(settings.data, data_dir) is None:
        return None
    return stage(settings.data, data_dir, with_home(settings.stage), lambda line: print(line, flush=True))  # noqa: T201


def _train(paths: RunPaths, settings: TrainSettings, environ: Mapping[str, str], startup: Startup) -> int:
    place = worlds.place(environ)
    attempt = _attempt(environ)
    if paths.project.is_dir():
        # So that a user's task finds its files by the same relative paths as in their project.
        os.chdir(str(paths.project))
    stall_s = settings.stall_timeout_s + _COMPILING_S.get(settings.engine, 0.0)
    if settings.compile:
        stall_s += _COMPILING_FOR_TORCH_S
    longest_s = stall_s + _LONGER_THAN_A_STALL_S + (_STAGING_S if settings.stage else 0.0)
    world = engines.join(settings.engine, place, environ, longest_s)
    startup.end("rendezvous")
    with Watch(paths, world, attempt, stall_s) as watch:
        run = RankRun(paths, settings, attempt, world, environ, watch, startup)
        if environ.get(environment.COMPILE_ONLY):
            return compile_only(run)
        opened, start = open_context(run)
        with contextlib.closing(opened):
            ending = Loop(opened, start).run()
    world.close()
    return exits.CHECKPOINTED if ending == STOPPED else exits.DONE


def _fail(message: str, code: int = exits.USER_OR_CLUSTER_CAN_FIX) -> int:
    sys.stdout.flush()
    print("trainjob: %s" % message, file=sys.stderr, flush=True)  # noqa: T201
    return code


def _fail_unexpectedly(error: Exception, paths: RunPaths, environ: Mapping[str, str]) -> int:
    lost, attempt = worlds.describe_lost_peer(error, int(environ.get(environment.RANK) or 0)), _attempt(environ)
    if lost is not None and is_stale(paths, attempt):
        return _fail("%s; a newer attempt has started" % lost, exits.STALE_ATTEMPT)
    if lost is not None:
        return _fail("%s: %s" % (lost, who_hung(paths, attempt) or "that rank ended or hangs; its log shows why"))
    traceback.print_exception(type(error), error, error.__traceback__)
    # After the traceback, because a status shows only the last lines.
    return _fail(_describe_task_failure(error, paths))


def _describe_task_failure(error: Exception, paths: RunPaths) -> str:
    """Return one line for an unexpected error: the task, the place in its file, the error."""
    try:
        settings = contract_job.read(paths.job).train
    except contract_job.ContractError:
        settings = None
    task = "?" if settings is None else settings.task
    kind, hint = type(error).__name__, getattr(error, HINT, "")
    project, frames = str(paths.project.resolve()), traceback.extract_tb(error.__traceback__)[::-1]
    # The innermost place in the user's project, or else outside of this package, which may be in torch.
    own = [frame for frame in frames if frame.filename.startswith(project)]
    places = own or [frame for frame in frames if not frame.filename.startswith(_OURS)]
    if not places:
        return "task %s: %s during training%s; its traceback is above" % (task, kind, hint)
    file = os.path.relpath(places[0].filename, project) if own else places[0].filename
    place = "%s (%s, line %s)" % (places[0].name, file, places[0].lineno)
    return "task %s raised %s in %s%s; its traceback is above" % (task, kind, place, hint)


def _attempt(environ: Mapping[str, str]) -> int:
    return int(environ.get(environment.ATTEMPT) or 1)
