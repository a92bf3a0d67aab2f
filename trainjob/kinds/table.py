"""The table of kinds: a new kind is a folder and a row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from trainjob.cluster.validation import validated
from trainjob.kinds import hosts, local, pod, slurm

if TYPE_CHECKING:
    from trainjob.cluster.base import Cluster
    from trainjob.render.rendered import Page


class Kind(Protocol):
    """One kind of cluster. The packages in the table fit this Protocol."""

    MODEL: type[Cluster]  # the keys of its cluster file, and its facts
    DRAFT: str  # the catalog's file from which `cluster init --kind` drafts

    def job_page(self) -> Page:
        """Return what renders the job script; it loads with the first rendering."""


# The type checker proves that every package fits the Protocol.
KINDS: dict[str, Kind] = {"ipu-pod": pod, "slurm": slurm, "hosts": hosts, "local": local}


def cluster_of(values: Mapping[str, Any]) -> Cluster:
    """Return the cluster that a file's keys and values describe; `kind` is one of KINDS. Raises InvalidError."""
    return validated(KINDS[values["kind"]].MODEL, values)
