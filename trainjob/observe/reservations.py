"""Reservations that have not ended: runs whose jobs hold nodes, in which other runs begin."""

from __future__ import annotations

from collections.abc import Iterator

from trainjob.backends import registry
from trainjob.contract import states
from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths
from trainjob.observe import index
from trainjob.records import attempts
from trainjob.records import submission as submissions

LAST = "last"
# As long as the longest job of any site.
_WITHIN_S = 31 * 86_400.0


def on_cluster(name: str) -> Iterator[tuple[RunPaths, str]]:
    """Yield each reservation on the cluster called `name` that has not ended, and its job: the newest first."""
    found = []
    for paths in index.recent(_WITHIN_S):
        one = submissions.read(paths)
        if one is None or not one.holds_nodes or one.cluster != name or one.native is None:
            continue
        if attempts.current(paths) < one.attempt or attempts.state(paths) in states.ACTIVE:
            found.append((one.asked_at, paths, registry.identify(one.backend, one.native)["job_id"]))
    for _, paths, job_id in sorted(found, key=lambda one: one[0], reverse=True):
        yield paths, job_id


def newest_job(name: str) -> str:
    """Return the job of the newest reservation on a cluster. Raises UserError where there is none."""
    for _, job_id in on_cluster(name):
        return job_id
    raise UserError(
        f"--in {LAST}: no reservation on cluster {name} is left",
        f"make one: trainjob reserve {name} --instances N --for 2h; `trainjob list` shows those that have ended",
    )


def is_reserved(name: str, job_id: str) -> bool:
    """Return whether a job is a reservation, which is charged to the budgets in place of the runs in it."""
    return any(job_id == one for _, one in on_cluster(name))
