"""Ends one run, and no other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from trainjob.backends import mirror, registry
from trainjob.backends.base import read_submission
from trainjob.contract import states
from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths
from trainjob.lifecycle.start import confirm_cancelled, record_cancelling
from trainjob.observe import arrays
from trainjob.observe.status import Status, status

_NOT_RECORDED = "no process of it is left; its record could not be written, so free some space on its disk"


def cancel(paths: RunPaths, *, grace_s: float) -> Status:
    """Return the run's status after all of its processes have ended; ranks get `grace_s` seconds to checkpoint.

    A run that has ended is not changed, but a V-IPU partition that it left behind is removed. Raises UserError for a
    run that was started by hand.
    """
    before = status(paths)
    submission = read_submission(paths)
    is_over = before.state not in states.ACTIVE and before.state != states.LOST and not before.is_stale
    if is_over:
        if submission is not None:
            registry.get(submission.backend).clean_up(paths)
        return before
    if submission is None:
        raise UserError(f"run {paths.id} was not submitted by trainjob", "End it where it was started")
    cancelled: list[RunPaths] = []
    if before.state != states.LOST:
        # Elements that were resumed individually have their own submissions.
        cancelled = [paths, *(element for element in arrays.elements(paths) if element.submission.is_file())]
    # A full disk must not keep the run alive. The record before the end survives if this command is killed meanwhile.
    recorded = [_is_recorded(record_cancelling, one) for one in cancelled]
    registry.get(submission.backend).cancel(paths, submission.native, grace_s)
    if not all(recorded):
        recorded = [_is_recorded(record_cancelling, one) for one in cancelled]
    recorded += [_is_recorded(confirm_cancelled, one) for one in cancelled]
    after = status(paths)
    if not all(recorded) and after.state in (*states.ACTIVE, states.LOST):
        return replace(after, state=states.CANCELLED, note=_NOT_RECORDED)
    return after


def _is_recorded(record: Callable[[RunPaths], None], paths: RunPaths) -> bool:
    try:
        record(paths)
    except OSError:
        return False
    return True


def stop(paths: RunPaths) -> Status:
    """Write the stop file, which asks the run to checkpoint and stop at its next block; return the run's status.

    A run that has ended gets no stop file, because the file would stop its next attempt at once.
    """
    now = status(paths)
    for one in now.elements or [now]:
        if one.state in states.ACTIVE:
            mirror.ask_to_stop(RunPaths(one.folder))
    return now
