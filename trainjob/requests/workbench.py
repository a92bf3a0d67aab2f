"""Trains variations of a job for commands that compare or measure them, on this machine or on the job's cluster.

All runs of a command are in its own folder, outside the index of runs, so `list` and `last` never show them. A guardian
process watches the folder: even if the command is killed by kill -9, no process or job of its runs survives.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from trainjob.backends import mirror
from trainjob.backends.base import machine_of
from trainjob.contract import clock, states
from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths, expanded, home
from trainjob.kinds.lookup import find, refuse_missing_facts
from trainjob.lifecycle import start
from trainjob.lifecycle.prune import remove_run
from trainjob.machines import process
from trainjob.observe import index
from trainjob.observe.seen import look
from trainjob.observe.status import Snapshot, poll, status
from trainjob.planning.words import quantity
from trainjob.records.files import only_owner_writes
from trainjob.records.submission import Remote
from trainjob.render.request import Request
from trainjob.requests.budget import charged
from trainjob.requests.guardian import KEEP
from trainjob.requests.prepared import Prepared, rendered
from trainjob.requests.submission import refuse_problems, refuse_secrets

_LOOK_S, _POLL_S, _SAY_EVERY_S = 0.005, 0.02, 10.0
# A status query starts a process, which costs more than several updates of a small network.
_BETWEEN_QUESTIONS_S = 0.5
_GUARDIAN_S = 120.0  # in which the guardian may end all runs
Seen = TypeVar("Seen")


@dataclass(frozen=True)
class Workbench:
    """A folder for variations of one job. `folder` holds their run directories and is removed unless they are kept."""

    prepared: Prepared
    folder: Path
    # Called with lines about the start and the progress of each run.
    say: Callable[[str], None] = lambda _line: None
    is_on_cluster: bool = False  # runs are jobs of a scheduler
    remote: Remote | None = None  # the same folder where ssh leads

    @property
    def folder_of_ranks(self) -> str:
        """The folder as the ranks of its runs see it."""
        return str(self.folder) if self.remote is None else self.remote.folder

    def publish(self, *names: str) -> None:
        """Have the ranks see these files of the folder as they are now, or that they are gone. Raises UserError."""
        if self.remote is None:
            return
        for name in names:
            source, target = self.folder / name, f"{self.remote.folder}/{name}"
            machine = machine_of(self.remote)
            if source.exists():
                # Whole or not at all: ranks take one that is half written for none.
                machine.run(["tee", f"{target}.part"], stdin=source.read_bytes())
                machine.run(["mv", "-f", f"{target}.part", target])
            else:
                machine.run(["rm", "-f", target])

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
        """Start the run of one variation and return it. Raises OverBudgetError for more than is left of a budget."""
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
                share=request.cluster.share if self.is_on_cluster else "none",
                remote=self.remote,
                is_listed=False,
                charge=charged(replace(self.prepared, request=request)) if self.is_on_cluster else None,
            ),
            again=True,
        )

    def run(self, request: Request) -> RunPaths:
        """Return the run of one variation once it is complete. Raises UserError if it fails."""
        paths = self.begin(request)
        self.refuse_incomplete(self.wait(paths))
        return paths

    def wait(self, paths: RunPaths, attempt: int | None = None) -> Snapshot:
        """Return the status of a run once it has ended, or `attempt` of it; what ranks have recorded is here then."""
        if not self.is_on_cluster:
            return wait(paths, self.say)
        now = poll(paths, lambda now: is_over(now, attempt))
        mirror.refresh_updates(paths, now.submission)
        return now

    def wait_for(self, paths: RunPaths, look: Callable[[], Seen | None], attempt: int | None = None) -> Seen | None:
        """Return what `look` sees, once it sees something; None if the run ends before, or `attempt` of it."""
        if not self.is_on_cluster:
            return wait_for(paths, look)
        seen: Seen | None = None

        def is_seen(now: Snapshot) -> bool:
            nonlocal seen
            mirror.refresh_updates(paths, now.submission)
            seen = look()
            return seen is not None or is_over(now, attempt)

        poll(paths, is_seen)
        return seen

    def refuse_incomplete(self, status: Snapshot) -> None:
        """Raise UserError, with the last lines of the failed rank, unless the run is complete."""
        if status.state == states.COMPLETED:
            return
        self.keep()
        tail = "\n  | ".join(status.failure.tail[-12:]) if status.failure else "no rank gave a reason"
        text, cure = f"a run that this command started is {status.state}. Its last lines:\n  | {tail}\n", ""
        if status.cause is not None:
            text, cure = f"{text}{status.cause.text}", f"{status.cause.cure}. "
        raise UserError(text, f"{cure}See all of its output: trainjob logs {status.folder}")

    def keep(self) -> None:
        """Keep the run directories when the command ends."""
        (self.folder / KEEP).touch()

    def discard(self, paths: RunPaths) -> None:
        """Remove a run that is no longer needed."""
        remove_run(paths, None)  # which is on this machine


def is_over(now: Snapshot, attempt: int | None) -> bool:
    """Return whether a run has ended; or `attempt` of it, after which a scheduler starts another."""
    if now.state not in states.ACTIVE:
        return True
    if attempt is None:
        return False
    return now.attempt > attempt or (now.attempt == attempt and now.state == states.REQUEUED)


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
def workbench(prepared: Prepared, say: Callable[[str], None], *, is_on_cluster: bool = False) -> Iterator[Workbench]:
    """Yield the workbench of a job, on this machine or on the job's own cluster; `say` is called with lines about runs.

    Raises UserError if the folder can't be created.
    """
    local = find("local").cluster.runs_dir
    runs_dir = prepared.runs_dir if is_on_cluster else expanded(local) if local else home()
    folder = runs_dir.resolve() / "experiments" / index.new_id("experiment")
    try:
        with only_owner_writes():
            folder.mkdir(parents=True)
    except OSError as error:
        raise UserError(
            f"{folder} can't be created ({error.strerror})", "set XDG_DATA_HOME to a writable folder"
        ) from None
    remote = prepared.remote() if is_on_cluster else None
    if remote is not None:
        remote = replace(remote, folder=f"{remote.folder}/experiments/{folder.name}")
        machine_of(remote).run(["mkdir", "-p", remote.folder])
    guardian = process.keep(
        [sys.executable, "-m", "trainjob.requests.guardian", str(folder)], log=folder / "guardian.log"
    )
    try:
        yield Workbench(prepared, folder, say, is_on_cluster, remote)
    finally:
        guardian.end(_GUARDIAN_S)
        kept = folder / KEEP
        # What the guardian could not cancel, or had no time for.
        unended = [str(record.parent) for record in folder.glob("*/submission.json")]
        left = kept.read_text().splitlines() if kept.exists() else unended
        for run in left:
            say(f"{run} is kept, because its job may go on. End it: {shlex.join(['trainjob', 'cancel', run])}")
        if remote is not None and not folder.exists():
            machine_of(remote).run(["rm", "-rf", remote.folder], check=False)


def refuse_unfit(prepared: Prepared) -> None:
    """Raise UserError for a cluster of another kind than local, and for every problem that `check` would find."""
    if not prepared.named_cluster.cluster.trains_here:
        raise UserError(
            f"this trains on the CPUs of this machine, and cluster {prepared.named_cluster.name} is of kind "
            f"{prepared.named_cluster.cluster.kind}",
            "leave --cluster out; the job's own settings decide what is trained",
        )
    refuse_problems(prepared)


def refuse_unready(prepared: Prepared) -> None:
    """Raise UserError for a job that its cluster can't take: missing facts about the site, and what `check` finds."""
    named = prepared.named_cluster
    start.refuse_redirects(os.environ)
    refuse_missing_facts(named.name, named.cluster, named.path)
    refuse_secrets(prepared)
    refuse_problems(prepared)
