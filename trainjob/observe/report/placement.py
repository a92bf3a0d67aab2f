"""The plan's picture as a page draws it: hosts, their instances, each with its samples, replicas and devices."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate

from trainjob.cluster import slurm_text
from trainjob.contract.batch import share
from trainjob.records.job import Plan

# A drawing of more than these would be longer than anybody reads.
MOST_HOSTS, MOST_INSTANCES, _MOST_REPLICAS = 16, 16, 4


@dataclass(frozen=True)
class Instance:
    """One instance. `first` and `size` are percentages of the global batch; None for a command of the user's own."""

    name: str
    samples: str
    first: float | None
    size: float | None
    replicas: list[str]


@dataclass(frozen=True)
class Host:
    """One host with the instances that are drawn, and the number of those that are not."""

    name: str
    instances: list[Instance]
    further: int


def hosts(plan: Plan) -> list[Host]:
    """Return the first hosts of a plan."""
    names = slurm_text.expand(plan.topology.hosts)[:MOST_HOSTS]
    each = plan.topology.instances_of_hosts
    firsts = list(accumulate(each, initial=0))
    return [_host(plan, name, firsts[number], each[number]) for number, name in enumerate(names)]


def _host(plan: Plan, name: str, first: int, instances: int) -> Host:
    drawn = min(instances, MOST_INSTANCES)
    return Host(name, [_instance(plan, first + local, local) for local in range(drawn)], instances - drawn)


def _instance(plan: Plan, index: int, local: int) -> Instance:
    name, replicas = f"instance {index}", list(_replicas(plan, index, local))
    if plan.batch is None:
        return Instance(name, "", None, None, replicas)
    whole, count = plan.batch.global_batch, plan.topology.instances
    first, end = share(whole, count, index)
    return Instance(name, f"D[{first}:{end}]", 100 * first / whole, 100 * (end - first) / whole, replicas)


def _replicas(plan: Plan, index: int, local: int) -> Iterator[str]:
    """Yield each replica of an instance with its devices; many replicas are one line."""
    topology = plan.topology
    count, each = topology.replicas_per_instance, topology.devices_per_replica
    # IPUs are numbered through the partition, GPUs from 0 on every host.
    device = (index if topology.device == "IPU" else local) * count * each
    if count > _MOST_REPLICAS:
        of_them = f"{_devices(topology.device, device, count * each)}, {each} each" if each else topology.device
        yield f"replicas {index * count}–{(index + 1) * count - 1} → {of_them}"
        return
    for replica in range(count):
        yield f"replica {index * count + replica} → {_devices(topology.device, device + replica * each, each)}"


def _devices(word: str, first: int, count: int) -> str:
    if not count:
        return word
    return f"{word} {first}" if count == 1 else f"{word}s {first}–{first + count - 1}"
