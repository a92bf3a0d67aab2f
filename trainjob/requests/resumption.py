"""The next attempt of a run: what it may cost, where it begins, and the margin that its checkpoints need."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from trainjob.backends.folder import write_again
from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths
from trainjob.kinds import table
from trainjob.lifecycle import ledger, start
from trainjob.lifecycle import resume as resuming
from trainjob.lifecycle.lock import locked
from trainjob.observe import notify
from trainjob.observe.report.report import slowest_checkpoint_s
from trainjob.observe.status import Snapshot, status
from trainjob.planning.build import plan
from trainjob.planning.rules import Refusal
from trainjob.records import checkpoints
from trainjob.records import job as jobs
from trainjob.render.request import MARGIN, Request
from trainjob.requests import budget
from trainjob.requests.inside import chosen, refuse_any, refuse_misfit
from trainjob.requests.prepared import rendered


def resume(
    paths: RunPaths,
    *,
    instances: int | None = None,
    from_scratch: bool = False,
    completed: bool = False,
    inside: str | None = None,
    over_budget: bool = False,
    warn: Callable[[str], None],
) -> None:
    """Start the next attempt of a run, with `instances` if given, and the same global batch.

    With `from_scratch` all checkpoints are set aside first. With `completed` a COMPLETED run goes on, too. A run inside
    an allocation begins in job `inside`, and without one in the same as before. `warn` is called with lines about
    checkpoints that the attempt skips, checkpoints that the last attempt could not write, and a margin before the time
    limit that is too short for them; it becomes longer unless the user has stated it. Raises UserError if another
    `resume` is under way, a redirecting variable is set, the run can't be resumed, all checkpoints are damaged, or
    `instances` does not divide the batch.
    """
    start.refuse_redirects(os.environ)
    with locked(paths.whole, "trainjob resume"):
        now = status(paths)
        resuming.refuse_unless_ended(now, completed=completed)
        if inside is not None:
            now = _moved(now, inside)
        lost = now.checkpoints_not_written
        if lost:
            warn(f"{lost} checkpoint{'s' if lost > 1 else ''} of the last attempt NOT written")
        for line in [] if from_scratch else resuming.passed_over(now):
            warn(line)
        request = None if instances is None else resuming.with_instances(paths, instances)
        request = follow_checkpoints(paths, request, warn)
        begin = resuming.parts_to_resume(now, completed=completed)
        again = [request or resuming.request_of(jobs.read(one.paths.job)) for one in begin]
        ledger.release(now)  # it is charged again, for the attempt that never began
        with ledger.charged(paths.whole, charge_of_run(now, begin, again, over_budget=over_budget)) as begins:
            if from_scratch:
                resuming.start_over(now)
            if request is not None:
                write_again(paths, rendered(request))
            begins()
            resuming.resume(now, completed=completed)
        notify.watch(paths)


def charge_of_run(
    now: Snapshot, begin: Sequence[Snapshot], again: Sequence[Request], *, over_budget: bool
) -> ledger.Charge | None:
    """Return what the next attempts of a run may cost, which are those of `begin`; None for nothing."""
    submission = now.submission
    if submission is None:
        return None
    project = Path(str(submission.project.get("top")), str(submission.project.get("start") or ""))
    charge = budget.charge_of(again, project, submission.inside)
    if not charge.devices:
        return None
    return charge._replace(
        limits=() if over_budget else charge.limits,
        again=[now.paths.whole] if again[0].cluster.packs else [one.paths for one in begin],
    )


def _moved(now: Snapshot, inside: str) -> Snapshot:
    """Return the status of a run whose next attempt begins in job `inside`. Raises UserError where it does not fit."""
    if now.submission is None or now.submission.inside is None:
        raise UserError(f"run {now.id} is a job of its own, and --in is for runs inside an allocation", "leave it out")
    again = resuming.request_of(jobs.read(now.paths.job))
    held = chosen(inside, again.plan.cluster, again.cluster)
    refuse_any(held)
    if held is None:
        raise UserError(
            f"--in {inside}: run {now.id} was rendered for an allocation",
            "Submit it anew with --in none, or name a job",
        )
    refuse_misfit(held.allocation, again.cluster, again)
    return dataclasses.replace(now, submission=now.submission.replace(inside=held.allocation.job_id))


def follow_checkpoints(paths: RunPaths, request: Request | None, say: Callable[[str], None]) -> Request | None:
    """Return the request with a longer margin, to render the run again, if its checkpoints need it; else `request`.

    A margin that the user has stated stays. `say` is called with a line about a margin that changes, or should change.
    """
    record = jobs.read(paths.job)
    cluster = table.recorded_cluster(record)
    if record.train is None:
        return request
    if paths.element is not None or paths.elements():  # one script starts all elements of an array
        return request
    margin_s, durable_s = record.train.limit_margin_s, 0.0
    with contextlib.suppress(UserError, OSError):  # without readable records, the duration is unknown
        durable_s = slowest_checkpoint_s(paths)
    if margin_s is None or not checkpoints.is_too_late(durable_s, margin_s):
        return request
    needed_s = checkpoints.margin_for(durable_s)
    observation = (
        f"a checkpoint of this run took up to {durable_s:.0f} s until it was on disk, and the stop signal comes only "
        f"{margin_s:.0f} s before the time limit"
    )
    if MARGIN not in record.request.origins and cluster.states_margin:
        say(
            f"{observation}, as its cluster file says. "
            f"Submit it again with time_limit_signal.margin_s: {needed_s} there"
        )
        return request
    try:
        before = request or resuming.request_of(record)
        longer = before.cluster.with_margin(needed_s)
        planned = plan(before.plan.cluster, longer, before.job)
    except Refusal as refused:
        say(f"{observation}. It stays so, because {needed_s} s do not fit: {refused}")
        return request
    say(f"{observation}: from now on {needed_s} s, also in its job script")
    origins = {**before.origins, MARGIN: f"measured: a checkpoint of this run took up to {durable_s:.0f} s"}
    return dataclasses.replace(before, cluster=longer, origins=origins, plan=planned)
