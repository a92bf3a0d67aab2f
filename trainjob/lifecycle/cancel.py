"""Ends one run, and no other."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from datetime import UTC, datetime

from trainjob.backends import containers, mirror, registry
from trainjob.contract import clock, states
from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths
from trainjob.lifecycle import ledger
from trainjob.lifecycle.lock import locked
from trainjob.observe.seen import CANCELLED_RUNNING, look
from trainjob.observe.status import Snapshot, status
from trainjob.records import submission as submissions

# What a resume takes, or what another cancel takes beyond its grace time.
_LOCK_S = 30.0
_NOT_RECORDED = "no process of it is left; its record could not be written, so free some space on its disk"


def cancel(paths: RunPaths, *, grace_s: float) -> Snapshot:
    """Return the run's status after all of its processes have ended; ranks get `grace_s` seconds to checkpoint.

    A run that has ended is not changed, but a V-IPU partition that it left behind is removed. Raises UserError for a
    run that was started by hand, and for a copy of a run directory.
    """
    with contextlib.ExitStack() as held:
        # A resume that is under way would record its attempt over the cancellation, or this over the attempt. A lock
        # that can't be had, or written, keeps no run alive.
        with contextlib.suppress(UserError):
            held.enter_context(locked(paths.whole, "trainjob cancel", wait_s=grace_s + _LOCK_S))
        return _cancel(paths, grace_s)


def _cancel(paths: RunPaths, grace_s: float) -> Snapshot:
    before = status(paths)
    submission = before.submission
    if submission is not None and submission.copy_of is not None:
        raise UserError(
            f"run {paths.id} in {paths.folder} is a copy: what runs belongs to {submission.copy_of}",
            f"To end that run: trainjob cancel {submission.copy_of}",
        )
    is_over = before.state not in states.ACTIVE and before.state != states.LOST
    if is_over and not before.is_stale and not before.is_held:
        if submission is not None:
            containers.remove_partitions(paths, submission)
        return before
    if submission is None:
        raise UserError(f"run {paths.id} was not submitted by trainjob", "End it where it was started")
    cancelled: list[RunPaths] = []
    if before.state != states.LOST:
        # Elements that were resumed individually have their own submissions.
        cancelled = [paths, *(one.paths for one in before.elements if one.paths.submission.is_file())]
    # A full disk must not keep the run alive. The record before the end survives if this command is killed meanwhile.
    at = datetime.fromtimestamp(clock.time(), UTC).isoformat(timespec="seconds")
    recorded = [_is_recorded(one, cancelled_at=at) for one in cancelled]
    registry.get(submission.backend).cancel(paths, submission, grace_s)
    if not all(recorded):
        recorded = [_is_recorded(one, cancelled_at=at) for one in cancelled]
    # Nothing is left: from now on its back end need not be asked. A script that was killed has left no word.
    recorded += [_is_recorded(one, is_cancelled=True) for one in cancelled]
    for seen in map(look, cancelled):
        if seen.state == states.RUNNING and all(recorded):
            seen.settle(states.CANCELLED, CANCELLED_RUNNING)
    after = status(paths)
    ledger.release(after)
    if not all(recorded) and after.state in (*states.ACTIVE, states.LOST):
        return replace(after, state=states.CANCELLED, note=_NOT_RECORDED)
    return after


def _is_recorded(paths: RunPaths, **changes: str | bool) -> bool:
    """Change a run's submission.json, which its job script may do meanwhile; return False if the disk refuses."""
    submission = submissions.read(paths)
    try:
        if submission is not None:
            submission.replace(**changes).write(paths)
    except OSError:
        return False
    return True


def stop(paths: RunPaths) -> Snapshot:
    """Write the stop file, which asks the run to checkpoint and stop at its next block; return the run's status.

    A run that has ended gets no stop file, because the file would stop its next attempt at once.
    """
    now = status(paths)
    for one in now.parts:
        if one.state in states.ACTIVE:
            mirror.ask_to_stop(one.paths, one.submission)
    return now
