"""Kind hosts: machines without a scheduler that share a folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainjob.kinds.hosts.model import HostsCluster

if TYPE_CHECKING:
    from trainjob.cluster.base import Cluster
    from trainjob.render.rendered import Page

MODEL: type[Cluster] = HostsCluster
DRAFT = "hosts-gpu"


def job_page() -> Page:
    """Return what renders the job script; it loads with the first rendering."""
    from trainjob.kinds.hosts import page

    return page
