"""Kind slurm: a partition of a cluster that Slurm schedules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainjob.kinds.slurm.model import SlurmCluster

if TYPE_CHECKING:
    from trainjob.cluster.base import Cluster
    from trainjob.render.request import Request

MODEL: type[Cluster] = SlurmCluster
TEMPLATE, SCRIPT = "jobs/sbatch.sh.j2", "job.sbatch"


def context(request: Request) -> dict[str, Any]:
    """Return the names that CONTRIBUTING.md lists for kind slurm. Raises UserError for what Slurm does not support."""
    from trainjob.kinds.slurm import page

    return page.context(request)
