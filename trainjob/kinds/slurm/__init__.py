"""Kind slurm: a partition of a cluster that Slurm schedules."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainjob.kinds.slurm.model import SlurmCluster

if TYPE_CHECKING:
    from trainjob.cluster.base import Cluster
    from trainjob.render.rendered import Page

MODEL: type[Cluster] = SlurmCluster
DRAFT = "slurm-gpu"


def job_page() -> Page:
    """Return what renders the job script; it loads with the first rendering."""
    from trainjob.kinds.slurm import page

    return page
