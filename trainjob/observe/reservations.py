"""Reservations that have not ended: runs whose jobs hold nodes, in which other runs begin."""

from __future__ import annotations

from pathlib import Path

from trainjob.backends import registry
from trainjob.contract import states
from trainjob.contract.errors import UserError
from trainjob.observe import index
from trainjob.observe.seen import look
from trainjob.records import submission as submissions

LAST = "last"
# The name of every reservation's job, by which they are found without reading all other runs.
NAME = "reservation"
# As long as the longest job of any site.
_WITHIN_S = 31 * 86_400.0


def jobs(cluster: str) -> dict[str, Path]:
    """Return the jobs of the reservations on a cluster that, as far as is known here, are left, the newest first.

    Each has the folder of the project in which it was reserved.
    """
    found = []
    for paths in index.recent(_WITHIN_S, NAME):
        one = submissions.read(paths)
        if one is None or not one.holds_nodes or one.cluster != cluster or one.native is None:
            continue
        state, _ = look(paths, one).state_with(None)
        if state in states.ACTIVE:
            project = Path(str(one.project.get("top")), str(one.project.get("start") or ""))
            found.append((one.asked_at, registry.identify(one.backend, one.native)["job_id"], project))
    return {job_id: project for _, job_id, project in sorted(found, reverse=True)}


def newest_job(cluster: str) -> str:
    """Return the job of the newest reservation on a cluster. Raises UserError where there is none."""
    found = jobs(cluster)
    if not found:
        raise UserError(
            f"--in {LAST}: no reservation on cluster {cluster} is left",
            f"make one: trainjob reserve {cluster} --instances N --for 2h; `trainjob list` shows those that have ended",
        )
    return next(iter(found))
