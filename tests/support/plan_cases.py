"""Clusters and jobs that the plan's tests share, in as few words as they can be said."""

from __future__ import annotations

from typing import Any

import pytest

from trainjob.cluster.base import Cluster
from trainjob.cluster.job import Job
from trainjob.cluster.slurm_text import expand
from trainjob.kinds.table import cluster_of
from trainjob.planning.build import plan
from trainjob.planning.rules import Refusal
from trainjob.records.job import Plan, Topology

OWN = "my_module:MyTask"  # a task of the user's own: nothing known before it runs


def pod(ipus: int, hosts: int = 1, **more: Any) -> Cluster:
    return cluster_of({"kind": "ipu-pod", "ipus": ipus, "hosts": f"pod-host[1-{hosts}]", **more})


def slurm(
    accelerator: str = "gpu",
    count: int = 8,
    accelerators: int = 4,
    cpus: int = 64,
    threads_per_core: int = 1,
    **more: Any,
) -> Cluster:
    nodes = {"count": count, "accelerator": accelerator, "accelerators": accelerators, "cpus": cpus}
    nodes["threads_per_core"] = threads_per_core
    return cluster_of({"kind": "slurm", "nodes": nodes, **more})


def hosts(count: int = 3, gpus: int = 4, **more: Any) -> Cluster:
    nodes = {"accelerator": "gpu", "accelerators": gpus} if gpus else {}
    return cluster_of({"kind": "hosts", "hosts": f"gpu-[1-{count}]", "nodes": nodes, **more})


def local(**more: Any) -> Cluster:
    return cluster_of({"kind": "local", **more})


def planned(cluster: Cluster, **job: Any) -> Plan:
    return plan("here", cluster, Job(**job))


def devices_of_hosts(topology: Topology) -> dict[str, list[list[tuple[int, ...]]]]:
    """Return the devices of each replica of each instance, by host."""
    found: dict[str, list[list[tuple[int, ...]]]] = {}
    count, each, rank = topology.replicas_per_instance, topology.devices_per_replica, 0
    for name, instances in zip(expand(topology.hosts), topology.instances_of_hosts, strict=True):
        firsts = [topology.first_device(rank + local, local) for local in range(instances)]
        found[name] = [
            [tuple(range(first + number * each, first + (number + 1) * each)) for number in range(count)]
            for first in firsts
        ]
        rank += instances
    return found


def refused(cluster: Cluster, **job: Any) -> Refusal:
    with pytest.raises(Refusal) as caught:
        planned(cluster, **job)
    return caught.value


def label(value: object) -> str:
    """Return what a case is called in pytest's report: a cluster by its kind."""
    return str(getattr(value, "kind", value))
