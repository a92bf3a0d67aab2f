"""The table of kinds: a new kind is a module or a value, and a row. And a run's cluster and job, from its job.json."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from trainjob.cluster.faults import InvalidError, validated
from trainjob.cluster.job import Job
from trainjob.contract.errors import UserError
from trainjob.kinds import hosts, local, pod, slurm
from trainjob.kinds.slurm.steps import AllocationKind, PackKind, ReservationKind
from trainjob.records.job import ContractError

if TYPE_CHECKING:
    from trainjob.cluster.base import Cluster
    from trainjob.records.job import JobRecord
    from trainjob.render.request import Request


class Kind(Protocol):
    """One kind of cluster. What stands in the table fits this Protocol, and load `render` with the first rendering."""

    MODEL: type[Cluster]  # the keys of its cluster file, and its facts
    TEMPLATE: str
    SCRIPT: str  # the name of the rendered file

    def context(self, request: Request) -> dict[str, Any]:
        """Return the names that the template may use. Raises UserError for what the kind does not support."""


# The type checker proves that every module fits the Protocol. A cluster file is of one of these kinds.
KINDS: dict[str, Kind] = {"ipu-pod": pod, "slurm": slurm, "hosts": hosts, "local": local}
# And those that only a request has: `in_allocation`, `as_packed` and `as_reservation` make them.
EVERY_KIND: dict[str, Kind] = {
    **KINDS,
    "allocation": AllocationKind(),
    "pack": PackKind(),
    "reservation": ReservationKind(),
}


def cluster_of(values: Mapping[str, object]) -> Cluster:
    """Return the cluster that a file's keys and values describe; `kind` is one of EVERY_KIND. Raises InvalidError."""
    return validated(EVERY_KIND[str(values["kind"])].MODEL, values)


def in_allocation(name: str, cluster: Cluster) -> Cluster:
    """Return the cluster called `name`, of kind slurm, as an allocation that a job is a step of. Raises UserError."""
    return _as_kind("allocation", cluster, f"--in: cluster {name}", "--in none goes to the queue")


def as_packed(name: str, cluster: Cluster, nodes: int) -> Cluster:
    """Return the cluster called `name` as one that packs the elements of an array into one job. Raises UserError."""
    where = f"pack is {nodes}, and cluster {name}"
    if not (cluster.has_scheduler and cluster.hosts_are_given):
        raise UserError(
            f"{where} is of kind {cluster.kind}: only Slurm gives one job whole nodes",
            "leave pack and array out, and submit each setting by itself",
        )
    return _as_kind("pack", cluster, where, "leave pack out")


def as_reservation(name: str, cluster: Cluster) -> Cluster:
    """Return the cluster called `name` as one whose jobs hold nodes for runs. Raises UserError."""
    if not (cluster.has_scheduler and cluster.hosts_are_given):
        raise UserError(
            f"cluster {name} is of kind {cluster.kind}, which has no queue to reserve nodes from",
            "submit without a reservation",
        )
    return _as_kind("reservation", cluster, f"cluster {name}", "submit without a reservation")


def _as_kind(kind: str, cluster: Cluster, where: str, cure: str) -> Cluster:
    try:
        return cluster_of({**cluster.as_values(stated_only=True), "kind": kind})
    except InvalidError as refused:
        raise UserError(f"{where}: {refused}", cure) from None


def recorded_cluster(record: JobRecord) -> Cluster:
    """Return the cluster of the run that `record` describes. Raises ContractError."""
    file = record.request.cluster.file
    if file.get("kind") not in EVERY_KIND:
        known = ", ".join(EVERY_KIND)
        raise ContractError(
            f"job.json is damaged: asked.cluster.file.kind is {file.get('kind')!r}, expected one of {known}"
        )
    try:
        return cluster_of(file)
    except InvalidError as refused:
        raise ContractError(f"job.json is damaged: asked.cluster.file: {refused}") from None


def recorded_job(record: JobRecord) -> Job:
    """Return the job of the run that `record` describes, as it was stated. Raises ContractError."""
    try:
        return Job.of(record.request.job)
    except InvalidError as refused:
        raise ContractError(f"job.json is damaged: asked.job: {refused}") from None
