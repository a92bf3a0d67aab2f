"""Reservations that have not ended: runs whose jobs hold nodes, in which other runs begin."""

from __future__ import annotations

from trainjob.backends import registry
from trainjob.contract import states
from trainjob.contract.errors import UserError
from trainjob.observe import index
from trainjob.observe.seen import look
from trainjob.records import submission as submissions

LAST = "last"
# As long as the longest job of any site.
_WITHIN_S = 31 * 86_400.0


def jobs(cluster: str) -> list[str]:
    """Return the jobs of the reservations on a cluster that, as far as is known here, are left: the newest first."""
    found = []
    for paths in index.recent(_WITHIN_S):
        one = submissions.read(paths)
        if one is None or not one.holds_nodes or one.cluster != cluster or one.native is None:
            continue
        state, _ = look(paths, one).state_with(None)
        if state in states.ACTIVE:
            found.append((one.asked_at, registry.identify(one.backend, one.native)["job_id"]))
    return [job_id for _, job_id in sorted(found, reverse=True)]


def newest_job(cluster: str) -> str:
    """Return the job of the newest reservation on a cluster. Raises UserError where there is none."""
    found = jobs(cluster)
    if not found:
        raise UserError(
            f"--in {LAST}: no reservation on cluster {cluster} is left",
            f"make one: trainjob reserve {cluster} --instances N --for 2h; `trainjob list` shows those that have ended",
        )
    return found[0]


def is_reserved(cluster: str, job_id: str) -> bool:
    """Return whether a job is a reservation, which is charged to the budgets in place of the runs in it."""
    return job_id in jobs(cluster)
