"""The time between the stop signal and the time limit of a resumed run: as long as its own checkpoints take."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable

from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths
from trainjob.kinds import table
from trainjob.lifecycle.resume import request_of
from trainjob.observe import arrays
from trainjob.observe.report.report import report
from trainjob.planning.build import plan
from trainjob.planning.rules import Refusal
from trainjob.records import checkpoints
from trainjob.records import job as jobs
from trainjob.render.request import MARGIN, Request


def follow_checkpoints(paths: RunPaths, request: Request | None, say: Callable[[str], None]) -> Request | None:
    """Return the request with a longer margin, to render the run again, if its checkpoints need it; else `request`.

    A margin that the user has stated stays. `say` is called with a line about a margin that changes, or should change.
    """
    record = jobs.read(paths.job)
    cluster = table.recorded_cluster(record)
    if record.train is None:
        return request
    if paths.element is not None or arrays.elements(paths):  # one script starts all elements of an array
        return request
    margin_s, durable_s = record.train.limit_margin_s, _durable_s(paths)
    if margin_s is None or not checkpoints.is_too_late(durable_s, margin_s):
        return request
    needed_s = checkpoints.margin_for(durable_s)
    observation = (
        f"a checkpoint of this run took up to {durable_s:.0f} s until it was on disk, and the run was told to stop "
        f"{margin_s:.0f} s before its time limit"
    )
    if MARGIN not in record.request.origins and cluster.states_margin:
        say(
            f"{observation}, as its cluster file says. "
            f"Submit it again with time_limit_signal.margin_s: {needed_s} there"
        )
        return request
    try:
        changed = _with_margin(request or request_of(record), needed_s, durable_s)
    except Refusal as refused:
        say(f"{observation}. It stays so, because {needed_s} s do not fit: {refused}")
        return request
    say(f"{observation}: from now on {needed_s} s, also in its job script")
    return changed


def _durable_s(paths: RunPaths) -> float:
    with contextlib.suppress(UserError, OSError):  # without readable records, the duration is unknown
        return report(paths).checkpoint_durable_s or 0.0
    return 0.0


def _with_margin(request: Request, margin_s: int, durable_s: float) -> Request:
    """Return the request with this margin, planned again. Raises Refusal if the time limit has no room for it."""
    cluster = request.cluster.with_margin(margin_s)
    origin = f"measured: a checkpoint of this run took up to {durable_s:.0f} s"
    return dataclasses.replace(
        request,
        cluster=cluster,
        origins={**request.origins, MARGIN: origin},
        plan=plan(request.plan.cluster, cluster, request.job),
    )
