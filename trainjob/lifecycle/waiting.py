"""Chains: a run that its scheduler starts once others are COMPLETED."""

from __future__ import annotations

from collections.abc import Iterable

from trainjob.backends import registry
from trainjob.backends.base import Remote, read_submission
from trainjob.contract import states
from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths
from trainjob.observe.status import Status, statuses


def to_wait_for(runs: Iterable[RunPaths], cluster: str, backend: str, remote: Remote | None) -> tuple[RunPaths, ...]:
    """Return which of `runs` a new run of `cluster` has to wait for: all but those that are COMPLETED already.

    `backend` and `remote` say how the new run is submitted. Raises UserError where that back end keeps no queue, for a
    run that its scheduler does not know, and for one that can't become COMPLETED.
    """
    if not registry.get(backend).HAS_SCHEDULER:
        raise UserError(
            f"--after needs a scheduler that holds the run back, and cluster {cluster} has none",
            "Submit this run when the other one has ended",
        )
    by_id = {paths.id: paths for paths in runs}
    return tuple(
        by_id[now.id] for now in statuses(by_id.values()) if not _is_over(by_id[now.id], now, cluster, backend, remote)
    )


def _is_over(paths: RunPaths, now: Status, cluster: str, backend: str, remote: Remote | None) -> bool:
    """Return whether a run is COMPLETED. Raises UserError where it can't be waited for."""
    submission = read_submission(paths)
    if submission is None:
        raise UserError(
            f"--after {now.id}: it was submitted by hand",
            "Name its job to sbatch yourself: sbatch --dependency=afterok:JOBID",
        )
    has_the_same_queue = registry.get(submission.backend) is registry.get(backend)
    if not has_the_same_queue or _host_of(submission.remote) != _host_of(remote):
        raise UserError(
            f"--after {now.id}: it runs on cluster {now.cluster}, and the scheduler of {cluster} does not know it",
            f"Wait until it has ended (trainjob logs {now.id} --follow), then submit this run",
        )
    if now.state == states.COMPLETED:
        return True
    if now.state not in states.ACTIVE or submission.native is None:
        raise UserError(
            f"--after {now.id}: it is {now.state}, and a run that waits for it would never start",
            f"Resume it first: trainjob resume {now.id}",
        )
    return False


def _host_of(remote: Remote | None) -> tuple[str | None, str | None]:
    return (None, None) if remote is None else (remote.host, remote.user)
