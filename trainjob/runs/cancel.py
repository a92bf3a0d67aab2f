"""Ends exactly one run."""

from __future__ import annotations

from trainjob.contract import states
from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths
from trainjob.runs import arrays
from trainjob.runs.start import cancelled_now
from trainjob.runs.status import Status, status
from trainjob.submit import backends, mirror, vipu_partitions
from trainjob.submit.base import Submission, place_of, read_submission


def cancel(paths: RunPaths, *, grace_s: float) -> Status:
    """Return the run's status after every process of it has ended; ranks get `grace_s` seconds to checkpoint.

    A run that has ended is left as it is, but for a V-IPU partition that it could not remove. Raises UserError for one
    that was started by hand.
    """
    before = status(paths)
    submission = read_submission(paths)
    if before.state not in states.ACTIVE and before.state != states.LOST:
        if submission is not None:
            vipu_partitions.remove_own(*place_of(paths), paths)
        return before
    if submission is None:
        raise UserError(f"run {paths.id} was not handed over by trainjob: end it where it was started")
    if before.state != states.LOST:
        cancelled_now(paths, submission)
        for task in _resumed_tasks(paths):
            cancelled_now(*task)
    backends.get(submission.backend).cancel(paths, submission.native, grace_s)
    return status(paths)


def _resumed_tasks(paths: RunPaths) -> list[tuple[RunPaths, Submission]]:
    """Return the tasks of an array that have a submission of their own, and would not hear of it by their run's."""
    found = [(task, read_submission(task)) for task in arrays.tasks(paths) if task.submission.is_file()]
    return [(task, submission) for task, submission in found if submission is not None]


def stop(paths: RunPaths) -> Status:
    """Ask the run to checkpoint and stop at its next block, by the stop file; return how it stands now.

    A run that has ended gets no such file: its next attempt would stop at once.
    """
    now = status(paths)
    for one in now.tasks or [now]:
        if one.state in states.ACTIVE:
            mirror.ask_to_stop(RunPaths(one.folder))
    return now
