"""What the arithmetic needs of a cluster, in one shape for all kinds."""

from __future__ import annotations

from dataclasses import dataclass

from trainjob.cluster.models import Cluster, LocalCluster, PodCluster, SlurmCluster

IPUS_PER_ILD = 64  # One rack is one IPU-Link domain: POD128 has 2, POD256 has 4 (MLPerf submissions' notes).


@dataclass(frozen=True)
class Site:
    """Room for jobs. `slots` are what one host has of `device_word`; None: no limit a host sets."""

    device_word: str  # "IPU" | "GPU" | "CPU"
    host_word: str
    hosts: int
    most_hosts: int  # hosts one job may have
    slots: int | None
    default_instances: int  # of one host
    ipus: int | None = None  # IPUs a job may have; None where there are none
    ilds: int | None = None  # IPU-Link domains, where the cluster file says


def site(cluster: Cluster) -> Site:
    """Return what the arithmetic needs of `cluster`."""
    if isinstance(cluster, PodCluster):
        return _pod(cluster)
    return _slurm(cluster) if isinstance(cluster, SlurmCluster) else _local(cluster)


def _pod(cluster: PodCluster) -> Site:
    names = cluster.host_names
    hosts = len(names) if names is not None else cluster.host_count or 1
    return Site("IPU", "host", hosts, hosts, None, 1, cluster.ipus, cluster.ilds)


def _slurm(cluster: SlurmCluster) -> Site:
    nodes = cluster.nodes
    most = min(nodes.count, cluster.limits.max_nodes or nodes.count)
    if nodes.accelerator == "ipu":
        return Site("IPU", "node", nodes.count, most, nodes.accelerators, 1, most * nodes.accelerators)
    if nodes.accelerator == "gpu":
        return Site("GPU", "node", nodes.count, most, nodes.accelerators, nodes.accelerators)
    return Site("CPU", "node", nodes.count, most, nodes.cpus, 1)


def _local(cluster: LocalCluster) -> Site:
    limits = [limit for limit in (cluster.accelerators or None, cluster.max_instances) if limit is not None]
    return Site(cluster.accelerator.upper(), "machine", 1, 1, min(limits, default=None), 1)


def host_names(cluster: Cluster, count: int) -> tuple[str, ...]:
    """Return the names of the first `count` hosts; host-1, host-2, … where the scheduler or the future decides."""
    if isinstance(cluster, LocalCluster):
        return ("localhost",)
    names = cluster.host_names if isinstance(cluster, PodCluster) else None
    return names[:count] if names is not None else tuple(f"host-{number}" for number in range(1, count + 1))
