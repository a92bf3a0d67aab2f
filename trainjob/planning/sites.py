"""The capacity of a cluster, in one form for all kinds."""

from __future__ import annotations

from dataclasses import dataclass

from trainjob.cluster.models import Cluster, HostsCluster, LocalCluster, NamedHosts, Nodes, PodCluster, SlurmCluster

IPUS_PER_ILD = 64  # One rack is one IPU-Link domain: POD128 has 2, POD256 has 4 (MLPerf submissions' notes).


@dataclass(frozen=True)
class Site:
    """What jobs may use. `slots` is the number of `device_word`s on one host; None if the host sets no limit."""

    device_word: str  # "IPU" | "GPU" | "CPU"
    host_word: str
    hosts: int
    most_hosts: int  # hosts one job may have
    slots: int | None
    default_instances: int  # of one host
    ipus: int | None = None  # IPUs that a job may have; None if the cluster has no IPUs
    ilds: int | None = None  # IPU-Link domains, if the cluster file states them
    default_hosts: int = 1  # of a job that names neither hosts nor instances
    spreads: bool = False  # instances are spread over hosts instead of filling one host after the other
    groups: tuple[Nodes, ...] = ()  # if hosts differ: a job takes all groups


def site(cluster: Cluster) -> Site:
    """Return the capacity of `cluster`."""
    match cluster:
        case PodCluster():
            hosts = cluster.number_of_hosts
            return Site("IPU", "host", hosts, hosts, None, 1, cluster.ipus, cluster.ilds)
        case SlurmCluster():
            return _slurm(cluster)
        case HostsCluster():
            return _hosts(cluster)
        case LocalCluster():
            limits = [limit for limit in (cluster.accelerators or None, cluster.max_instances) if limit is not None]
            return Site(cluster.accelerator.upper(), "machine", 1, 1, min(limits, default=None), 1)


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
        # GPUs on one host exchange gradients faster than GPUs on two, so jobs fill one host before the next.
        return Site("GPU", "host", hosts, hosts, gpus, gpus, default_hosts=hosts)
    # On CPUs one instance takes a whole host.
    return Site("CPU", "host", hosts, hosts, cluster.nodes.cpus, 1, default_hosts=hosts, spreads=True)


def host_names(cluster: Cluster, count: int) -> tuple[str, ...]:
    """Return the names of the first `count` hosts; host-1, host-2, … if they are not known before the job runs."""
    if isinstance(cluster, LocalCluster):
        return ("localhost",)
    names = cluster.host_names if isinstance(cluster, NamedHosts) else None
    return names[:count] if names is not None else tuple(f"host-{number}" for number in range(1, count + 1))
