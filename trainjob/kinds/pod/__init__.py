"""Kind ipu-pod: hosts that share IPUs, launched by poprun."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainjob.kinds.pod.model import PodCluster

if TYPE_CHECKING:
    from trainjob.cluster.base import Cluster
    from trainjob.render.rendered import Page

MODEL: type[Cluster] = PodCluster
DRAFT = "pod64"


def job_page() -> Page:
    """Return what renders the job script; it loads with the first rendering."""
    from trainjob.kinds.pod import page

    return page
