"""Compares the cluster file of a Slurm cluster with what its controller reports."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from trainjob.cluster.base import Cluster
from trainjob.cluster.slurm_text import seconds
from trainjob.kinds.slurm.model import SlurmCluster
from trainjob.machines.machine import Machine
from trainjob.machines.slurm import partitions
from trainjob.machines.slurm.partitions import Nodes, Partition

_MB_PER_GB = 1024


@dataclass(frozen=True)
class Change:
    """A key of the cluster file, with its value there and on the live cluster."""

    key: str
    stated: str
    live: str


def changes(named: Cluster, machine: Machine) -> list[Change]:
    """Return in what the file and the live cluster differ. Raises UserError if Slurm does not answer.

    Of a file with several groups of nodes, only the limits and Slurm's release are compared.
    """
    cluster = SlurmCluster.of(named)
    listed = partitions.partitions(machine)
    name = cluster.partition
    found = next((one for one in listed if (one.name == name if name else one.is_default)), None)
    if found is None:
        names = ", ".join(one.name for one in listed)
        return [Change("directives.partition", name or "the default one", f"there is none; it has {names}")]
    settings = partitions.configuration(machine)
    compared = [*_of_limits(cluster, found), *_of_slurm(cluster, settings, machine)]
    if not cluster.has_groups:
        compared += _of_nodes(cluster, found, machine, settings)
    return [one for one in compared if one.stated != one.live]


def _of_limits(cluster: SlurmCluster, found: Partition) -> Iterator[Change]:
    limits = cluster.limits
    if limits.max_time is not None and seconds(limits.max_time) != seconds(found.max_time):
        yield Change("limits.max_time", limits.max_time, found.max_time)
    yield Change("limits.min_nodes", str(limits.min_nodes), str(max(1, found.min_nodes)))
    if limits.max_nodes is not None:
        yield Change("limits.max_nodes", str(limits.max_nodes), str(found.max_nodes or "unlimited"))


def _of_slurm(cluster: SlurmCluster, settings: dict[str, str], machine: Machine) -> Iterator[Change]:
    version = settings.get("SLURM_VERSION", "")
    if cluster.slurm.version is not None and not version.startswith(cluster.slurm.version):
        yield Change("slurm.version", cluster.slurm.version, version)
    account = partitions.account(machine, settings)
    is_named = "account" in (*cluster.required_directives, *cluster.directives)
    if account.is_demanded and not account.default and not is_named:
        enforced = settings["AccountingStorageEnforce"]
        yield Change("required_directives", "no account", f"AccountingStorageEnforce={enforced}: an account is needed")


def _of_nodes(cluster: SlurmCluster, found: Partition, machine: Machine, settings: dict[str, str]) -> Iterator[Change]:
    ours, kind = cluster.node, cluster.node.gres_name

    def likeness(nodes: Nodes) -> tuple[bool, bool, int]:
        return nodes.accelerators(kind) == ours.accelerators, nodes.cpus == ours.cpus, nodes.count

    whole = max(found.nodes, key=likeness)
    theirs = partitions.allowed_nodes(machine, found.name, whole, settings, partitions.settings_of(machine, found.name))
    alike = sum(one.count for one in found.nodes if one.accelerators(kind) == theirs.accelerators(kind))
    yield Change("nodes.count", str(ours.count), str(alike))
    yield Change("nodes.accelerators", str(ours.accelerators), str(theirs.accelerators(kind)))
    yield Change("nodes.cpus", str(ours.cpus), str(theirs.cpus))
    yield Change("nodes.threads_per_core", str(ours.threads_per_core), str(theirs.threads_per_core))
    types = {model for name, model, _ in theirs.gres if name == kind and model}
    if ours.type is not None and ours.type not in types:
        yield Change("nodes.type", ours.type, ", ".join(sorted(types)) or "no type")
    # Jobs may use less than a node has, and never more.
    if ours.memory_gb is not None and ours.memory_gb * _MB_PER_GB > theirs.memory_mb:
        yield Change("nodes.memory_gb", str(ours.memory_gb), f"at most {theirs.memory_mb // _MB_PER_GB}")
