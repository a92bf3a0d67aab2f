"""Kind local: this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainjob.kinds.local.model import LocalCluster

if TYPE_CHECKING:
    from trainjob.cluster.base import Cluster
    from trainjob.render.rendered import Page

MODEL: type[Cluster] = LocalCluster
DRAFT = "local"


def job_page() -> Page:
    """Return what renders the job script; it loads with the first rendering."""
    from trainjob.kinds.local import page

    return page
