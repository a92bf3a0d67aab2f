"""Trains variations of a job on this machine, for commands that compare or measure them.

All runs of a command are in its own folder, outside the index of runs, so `list` and `last` never show them. A guardian
process watches the folder: even if the command is killed by kill -9, no process of its runs survives.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from trainjob.contract import clock, states
from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths, expanded, home
from trainjob.kinds.lookup import find
from trainjob.lifecycle import start
from trainjob.lifecycle.prune import remove_run
from trainjob.machines import process
from trainjob.observe import index
from trainjob.observe.seen import look
from trainjob.observe.status import Snapshot, poll, status
from trainjob.planning.words import quantity
from trainjob.records.files import only_owner_writes
from trainjob.render.request import Request
from trainjob.requests.guardian import KEEP
from trainjob.requests.prepared import Prepared, rendered
from trainjob.requests.submission import refuse_problems

_LOOK_S, _POLL_S, _SAY_EVERY_S = 0.005, 0.02, 10.0
# A status query starts a process, which costs more than several updates of a small network.
_BETWEEN_QUESTIONS_S = 0.5
Seen = TypeVar("Seen")


@dataclass(frozen=True)
class Workbench:
    """A folder for variations of one job. `folder` holds their run directories and is removed unless they are kept."""

    prepared: Prepared
    folder: Path
    # Called with lines about the start and the progress of each run.
    say: Callable[[str], None] = lambda _line: None

    @property
    def request(self) -> Request:
        """The request without variations."""
        return self.prepared.request

    def vary(self, **settings: Any) -> Request:
        """Return the job with these settings changed, planned again. Raises Refusal."""
        return self.prepared.changed(**settings).request

    def refuse_command(self) -> None:
        """Raise UserError if the job is the user's own command."""
        if self.request.job.command:
            raise UserError(
                "this command trains a task, and the updates of a command of your own can't be observed", "give --task"
            )

    def begin(self, request: Request) -> RunPaths:
        """Start the run of one variation and return it."""
        instances, job = request.plan.topology.instances, request.job
        length = f", {job.updates} updates" if job.updates else f", {job.epochs} epochs" if job.epochs else ""
        self.say(f"{request.plan.name}: {quantity(instances, 'instance')}{length} …")
        return start.submit(
            start.Handover(
                rendered=rendered(request),
                name=request.plan.name,
                cluster=request.plan.cluster,
                backend=request.cluster.back_end,
                runs_dir=self.folder,
                project=self.prepared.project,
                selection=self.prepared.selection,
                is_listed=False,
            ),
            again=True,
        )

    def run(self, request: Request) -> RunPaths:
        """Return the run of one variation once it is complete. Raises UserError if it fails."""
        paths = self.begin(request)
        self.refuse_incomplete(wait(paths, self.say))
        return paths

    def refuse_incomplete(self, status: Snapshot) -> None:
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
        """Keep the run directories when the command ends."""
        (self.folder / KEEP).touch()

    def discard(self, paths: RunPaths) -> None:
        """Remove a run that is no longer needed."""
        remove_run(paths, None)  # which is on this machine


def wait(paths: RunPaths, say: Callable[[str], None]) -> Snapshot:
    """Return the status of a run once it has ended; until then call `say` with its progress every 10 s."""
    began_at = reported_at = clock.monotonic()

    def has_ended(now: Snapshot) -> bool:
        nonlocal reported_at
        if now.state not in states.ACTIVE:
            return True
        if clock.monotonic() - reported_at >= _SAY_EVERY_S:
            reported_at = clock.monotonic()
            updates = f"update {now.update} of {now.total_updates}, " if now.update and now.total_updates else ""
            left_s = None if now.outlook is None else now.outlook.left_s
            left = "" if left_s is None else f", about {left_s:.0f} s left"
            say(f"  {updates}{reported_at - began_at:.0f} s{left}")
        return False

    def until_its_files_end(_between_s: float) -> None:
        # Or for a while, because its script may have been killed.
        limit = clock.monotonic() + _BETWEEN_QUESTIONS_S
        clock.sleep(_POLL_S)
        while look(paths).is_open and clock.monotonic() < limit:
            clock.sleep(_POLL_S)

    return poll(paths, has_ended, until_its_files_end)


def wait_for(paths: RunPaths, look: Callable[[], Seen | None]) -> Seen | None:
    """Return what `look` sees, once it sees something; None if the run ends before."""
    asked_at = clock.monotonic()
    while (seen := look()) is None:
        if clock.monotonic() - asked_at > _BETWEEN_QUESTIONS_S:
            if status(paths).state not in states.ACTIVE:
                return None
            asked_at = clock.monotonic()
        clock.sleep(_LOOK_S)
    return seen


@contextlib.contextmanager
def workbench(prepared: Prepared, say: Callable[[str], None]) -> Iterator[Workbench]:
    """Yield the workbench of a job on this machine; `say` is called with lines about its runs.

    Raises UserError if the folder can't be created.
    """
    runs_dir = find("local").cluster.runs_dir
    kept = (expanded(runs_dir) if runs_dir else home()) / "experiments"
    folder = kept.resolve() / index.new_id("experiment")
    try:
        with only_owner_writes():
            folder.mkdir(parents=True)
    except OSError as error:
        raise UserError(
            f"{folder} can't be created ({error.strerror})", "set XDG_DATA_HOME to a writable folder"
        ) from None
    guardian = process.keep(
        [sys.executable, "-m", "trainjob.requests.guardian", str(folder)], log=folder / "guardian.log"
    )
    try:
        yield Workbench(prepared, folder, say)
    finally:
        guardian.end()


def refuse_unfit(prepared: Prepared) -> None:
    """Raise UserError for a cluster of another kind than local, and for every problem that `check` would find."""
    if not prepared.named_cluster.cluster.trains_here:
        raise UserError(
            f"this trains on the CPUs of this machine, and cluster {prepared.named_cluster.name} is of kind "
            f"{prepared.named_cluster.cluster.kind}",
            "leave --cluster out; the job's own settings decide what is trained",
        )
    refuse_problems(prepared)
