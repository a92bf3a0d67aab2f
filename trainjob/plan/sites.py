"""What the arithmetic needs of a cluster, in one shape for all kinds."""

from __future__ import annotations

from dataclasses import dataclass

from trainjob.cluster.models import Cluster, HostsCluster, LocalCluster, NamedHosts, Nodes, PodCluster, SlurmCluster

IPUS_PER_ILD = 64  # One rack is one IPU-Link domain: POD128 has 2, POD256 has 4 (MLPerf submissions' notes).


@dataclass(frozen=True)
class Site:
    """What jobs may use. `slots` is how many of `device_word` one host has; None: the host sets no limit."""

    device_word: str  # "IPU" | "GPU" | "CPU"
    host_word: str
    hosts: int
    most_hosts: int  # hosts one job may have
    slots: int | None
    default_instances: int  # of one host
    ipus: int | None = None  # IPUs a job may have; None where there are none
    ilds: int | None = None  # IPU-Link domains, where the cluster file says
    default_hosts: int = 1  # of a job that names neither hosts nor instances
    spreads: bool = False  # instances are spread over hosts, rather than filling one after the other
    groups: tuple[Nodes, ...] = ()  # where hosts differ: a job takes all of them


def site(cluster: Cluster) -> Site:
    """Return what the arithmetic needs of `cluster`."""
    match cluster:
        case PodCluster():
            hosts = cluster.number_of_hosts
            return Site("IPU", "host", hosts, hosts, None, 1, cluster.ipus, cluster.ilds)
        case SlurmCluster():
            return _slurm(cluster)
        case HostsCluster():
            return _hosts(cluster)
        case LocalCluster():
            return _local(cluster)


def _slurm(cluster: SlurmCluster) -> Site:
    if cluster.has_groups:
        return _groups(cluster)
    nodes = cluster.node
    most = min(nodes.count, cluster.limits.max_nodes or nodes.count)
    if nodes.accelerator == "ipu":
        return Site("IPU", "node", nodes.count, most, nodes.accelerators, 1, most * nodes.accelerators)
    if nodes.accelerator == "gpu":
        return Site("GPU", "node", nodes.count, most, nodes.accelerators, nodes.accelerators)
    return Site("CPU", "node", nodes.count, most, nodes.cpus, 1)


def _groups(cluster: SlurmCluster) -> Site:
    hosts = sum(group.count for group in cluster.groups)
    most = min(hosts, cluster.limits.max_nodes or hosts)
    word = cluster.node.accelerator.upper()
    return Site(word, "node", hosts, most, None, 1, default_hosts=hosts, groups=cluster.groups)


def _hosts(cluster: HostsCluster) -> Site:
    hosts, gpus = cluster.number_of_hosts, cluster.nodes.accelerators
    if gpus:
        # GPUs of one host reduce faster than those of two: a host is filled before the next.
        return Site("GPU", "host", hosts, hosts, gpus, gpus, default_hosts=hosts)
    # On CPUs one instance takes a whole host.
    return Site("CPU", "host", hosts, hosts, cluster.nodes.cpus, 1, default_hosts=hosts, spreads=True)


def _local(cluster: LocalCluster) -> Site:
    limits = [limit for limit in (cluster.accelerators or None, cluster.max_instances) if limit is not None]
    return Site(cluster.accelerator.upper(), "machine", 1, 1, min(limits, default=None), 1)


def host_names(cluster: Cluster, count: int) -> tuple[str, ...]:
    """Return the names of the first `count` hosts; host-1, host-2, … where the scheduler or the future decides."""
    if isinstance(cluster, LocalCluster):
        return ("localhost",)
    names = cluster.host_names if isinstance(cluster, NamedHosts) else None
    return names[:count] if names is not None else tuple(f"host-{number}" for number in range(1, count + 1))
