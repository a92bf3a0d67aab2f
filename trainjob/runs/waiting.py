"""Chains: a run that Slurm starts once others are COMPLETED."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from trainjob.contract import states
from trainjob.contract.errors import UserError
from trainjob.contract.files import read_word
from trainjob.contract.paths import RunPaths
from trainjob.runs.status import Status, statuses
from trainjob.submit.base import Submission, read_submission


class Waiting(NamedTuple):
    """The runs that a new one waits for, and what sbatch is told of them."""

    runs: tuple[str, ...]
    options: tuple[str, ...]


def after(asked: Iterable[RunPaths], cluster: str, place: tuple[str | None, str | None]) -> Waiting:
    """Return what it takes to wait until all of `asked` are COMPLETED; those that are need no waiting.

    `place` is the host and user that the new run is handed over by. Raises UserError for a run that the cluster's
    Slurm doesn't know, and for one that has ended otherwise.
    """
    found = {paths.id: paths for paths in asked}
    jobs = {now.id: _job(found[now.id], now, cluster, place) for now in statuses(found.values())}
    known = {run: job for run, job in jobs.items() if job is not None}
    options = (f"--dependency=afterok:{':'.join(known.values())}",) if known else ()
    return Waiting(tuple(known), options)


def _job(paths: RunPaths, now: Status, cluster: str, place: tuple[str | None, str | None]) -> str | None:
    submission = read_submission(paths)
    if submission is None:
        raise UserError(
            f"--after {now.id}: it was submitted by hand. Wait for its job: sbatch --dependency=afterok:JOBID"
        )
    if submission.backend != "slurm" or _place(submission) != place:
        raise UserError(
            f"--after {now.id}: it is on cluster {now.cluster}, and the Slurm of {cluster} knows nothing of that. "
            f"Wait until it has ended (trainjob logs {now.id} --follow), then submit"
        )
    if now.state == states.COMPLETED:
        return None
    if now.state not in states.ACTIVE or submission.native is None:
        raise UserError(
            f"--after {now.id}: it is {now.state}, and what waits for it would wait for ever. "
            f"Let it go on first: trainjob resume {now.id}"
        )
    # A job that could not be requeued goes on as another one, which only its folder knows.
    has_begun = now.attempt >= submission.attempt
    return (read_word(paths.job_id) if has_begun else None) or str(submission.native["job_id"])


def _place(submission: Submission) -> tuple[str | None, str | None]:
    remote = submission.remote
    return (None, None) if remote is None else (remote.host, remote.user)
