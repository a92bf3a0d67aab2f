"""Trains variations of a job on this machine, for commands that compare or measure them.

Every run lies in one folder of the command's own, outside the index of runs: `list` and `last` never see it. A guardian
process holds the folder: however the command ends, by kill -9 as well, no process of its runs is left.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainjob.cluster.lookup import find
from trainjob.contract import states
from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths, expanded
from trainjob.machines import process
from trainjob.render.request import Request
from trainjob.requests.guardian import KEEP
from trainjob.requests.prepared import Prepared, rendered
from trainjob.requests.submission import refuse_problems
from trainjob.runs import index, start
from trainjob.runs.prune import remove_run
from trainjob.runs.seen import look
from trainjob.runs.status import Status, poll
from trainjob.submit import backends

_POLL_S, _BETWEEN_QUESTIONS_S, _SAY_EVERY_S = 0.02, 0.5, 10.0


@dataclass(frozen=True)
class Workbench:
    """Where variations of one job run. `folder` holds their run directories, and goes unless something is kept."""

    prepared: Prepared
    folder: Path
    # Called with a line about each run that begins, and about its progress.
    say: Callable[[str], None] = lambda _line: None

    @property
    def request(self) -> Request:
        """The job as it was asked for."""
        return self.prepared.request

    def vary(self, **settings: Any) -> Request:
        """Return the job with some settings changed, planned anew. Raises Refusal."""
        return self.prepared.changed(**settings).request

    def refuse_command(self) -> None:
        """Raise UserError for a job that is a command of the user's own."""
        if self.request.job.command:
            raise UserError(
                "this command trains a task, and the updates of a command of your own can't be observed", "give --task"
            )

    def begin(self, request: Request) -> RunPaths:
        """Return the run of one variation, which has begun."""
        self.say(_in_words(request))
        return start.submit(
            start.Handover(
                rendered=rendered(request),
                name=request.plan.name,
                cluster=request.plan.cluster,
                backend=backends.name_for(request.cluster),
                runs_dir=self.folder,
                project=self.prepared.project,
                selection=self.prepared.selection,
                is_listed=False,
            ),
            again=True,
        )

    def run(self, request: Request) -> RunPaths:
        """Return the run of one variation after it is complete. Raises UserError when it fails."""
        paths = self.begin(request)
        self.refuse_incomplete(wait(paths, self.say))
        return paths

    def refuse_incomplete(self, status: Status) -> None:
        """Raise UserError, with the last lines of the failed rank, unless the run is complete."""
        if status.state == states.COMPLETED:
            return
        self.keep()
        tail = "\n  | ".join(status.failure.tail[-12:]) if status.failure else "no rank gave a reason"
        raise UserError(
            f"a run that this command started is {status.state}. Its last lines:\n  | {tail}\n",
            f"See all of its output: trainjob logs {status.folder}",
        )

    def keep(self) -> None:
        """Leave the run directories where they are when the command ends."""
        (self.folder / KEEP).touch()

    def discard(self, paths: RunPaths) -> None:
        """Remove a run that has served its purpose."""
        remove_run(paths)


def _in_words(request: Request) -> str:
    instances, job = request.plan.topology.instances, request.job
    length = f", {job.updates} updates" if job.updates else f", {job.epochs} epochs" if job.epochs else ""
    return f"{request.plan.name}: {instances} instance{'' if instances == 1 else 's'}{length} …"


def wait(paths: RunPaths, say: Callable[[str], None]) -> Status:
    """Return the status of a run that has ended; until then `say` is called with its progress now and then."""
    began_at = said_at = time.monotonic()

    def has_ended(now: Status) -> bool:
        nonlocal said_at
        if now.state not in states.ACTIVE:
            return True
        if time.monotonic() - said_at >= _SAY_EVERY_S:
            said_at = time.monotonic()
            say(_progress(now, said_at - began_at))
        return False

    return poll(paths, has_ended, lambda: _until_its_files_end(paths))


def _progress(now: Status, since_s: float) -> str:
    """Return how far a run is that began `since_s` seconds ago."""
    updates = f"update {now.update} of {now.total_updates}, " if now.update and now.total_updates else ""
    left = f", about {now.outlook.left_s:.0f} s left" if now.outlook is not None else ""
    return f"  {updates}{since_s:.0f} s{left}"


def _until_its_files_end(paths: RunPaths) -> None:
    """Return once the files of a run say that it has ended, and after a while, as its script may have been killed.

    A status also asks whether the script lives, which starts a process: beside a small net, more work than its updates.
    """
    limit = time.monotonic() + _BETWEEN_QUESTIONS_S
    time.sleep(_POLL_S)
    while look(paths).is_open and time.monotonic() < limit:
        time.sleep(_POLL_S)


@contextlib.contextmanager
def workbench(prepared: Prepared, say: Callable[[str], None]) -> Iterator[Workbench]:
    """Yield the workbench of a job on this machine; `say` is called with lines about its runs.

    Raises UserError where the folder can't be made.
    """
    with _guarded(_home()) as folder:
        yield Workbench(prepared, folder, say)


def refuse_unfit(prepared: Prepared) -> None:
    """Raise UserError for a cluster of another kind, and for every problem of the job that `check` would find."""
    if prepared.named_cluster.cluster.kind != "local":
        raise UserError(
            f"this trains on the CPUs of this machine, and cluster {prepared.named_cluster.name} is of kind "
            f"{prepared.named_cluster.cluster.kind}",
            "leave --cluster out; the job's own settings decide what is trained",
        )
    refuse_problems(prepared)


def _home() -> Path:
    runs_dir = find("local").cluster.runs_dir
    return (expanded(runs_dir) if runs_dir else index.home()) / "experiments"


@contextlib.contextmanager
def _guarded(home: Path) -> Iterator[Path]:
    folder = home.resolve() / index.new_id("experiment")
    try:
        folder.mkdir(parents=True)
    except OSError as error:
        raise UserError(
            f"{folder} can't be created ({error.strerror})", "set XDG_DATA_HOME to a writable folder"
        ) from None
    guardian = process.keep(
        [sys.executable, "-m", "trainjob.requests.guardian", str(folder)], log=folder / "guardian.log"
    )
    try:
        yield folder
    finally:
        guardian.end()
