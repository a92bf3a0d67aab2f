"""Ends exactly one run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from trainjob.contract import states
from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths
from trainjob.runs import arrays
from trainjob.runs.start import confirm_cancelled, record_cancelling
from trainjob.runs.status import Status, status
from trainjob.submit import backends, mirror
from trainjob.submit.base import read_submission

_NOT_RECORDED = "nothing of it is left; its record could not be written, so free some space on its disk"


def cancel(paths: RunPaths, *, grace_s: float) -> Status:
    """Return the run's status after all of its processes have ended; ranks get `grace_s` seconds to checkpoint.

    A run that has ended stays as it is, except that a V-IPU partition it left behind is removed. Raises UserError for
    a run that was started by hand.
    """
    before = status(paths)
    submission = read_submission(paths)
    is_over = before.state not in states.ACTIVE and before.state != states.LOST and not before.is_stale
    if is_over:
        if submission is not None:
            backends.get(submission.backend).clean_up(paths)
        return before
    if submission is None:
        raise UserError(f"run {paths.id} was not submitted by trainjob", "End it where it was started")
    cancelled: list[RunPaths] = []
    if before.state != states.LOST:
        # Elements of an array that were resumed by themselves have submissions of their own.
        cancelled = [paths, *(element for element in arrays.elements(paths) if element.submission.is_file())]
    # Whatever its disk refuses, the run ends. What is recorded before is for the case that we are killed meanwhile.
    recorded = [_is_recorded(record_cancelling, one) for one in cancelled]
    backends.get(submission.backend).cancel(paths, submission.native, grace_s)
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
    """Ask the run by its stop file to checkpoint and stop at its next block; return its status.

    A run that has ended gets no such file, which would stop its next attempt at once.
    """
    now = status(paths)
    for one in now.elements or [now]:
        if one.state in states.ACTIVE:
            mirror.ask_to_stop(RunPaths(one.folder))
    return now
