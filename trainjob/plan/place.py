"""Counts become places: hosts, instances, replicas and devices, all in order."""

from __future__ import annotations

from trainjob.plan.counts import Counts
from trainjob.plan.values import Host, Instance, Replica, Topology


def place(counts: Counts, names: tuple[str, ...]) -> Topology:
    """Return where everything runs: each host is filled with its share before the next."""
    here = counts.instances // counts.hosts
    hosts = tuple(
        Host(name, tuple(_instance(counts, number * here + local, local) for local in range(here)))
        for number, name in enumerate(names)
    )
    return Topology(
        hosts=hosts,
        instances=counts.instances,
        replicas=counts.replicas,
        devices_per_replica=counts.devices_per_replica,
        device_word=counts.device_word,
        ilds=counts.ilds,
        partition_ipus=counts.partition_ipus,
    )


def _instance(counts: Counts, index: int, local_index: int) -> Instance:
    each = counts.replicas // counts.instances
    # IPUs are numbered through the partition, GPUs anew on every host.
    first_device = (index if counts.device_word == "IPU" else local_index) * each * counts.devices_per_replica
    replicas = tuple(
        Replica(index * each + local, _devices(first_device, local, counts.devices_per_replica))
        for local in range(each)
    )
    return Instance(index, local_index, replicas)


def _devices(first: int, replica: int, each: int) -> tuple[int, ...]:
    return tuple(range(first + replica * each, first + (replica + 1) * each))
