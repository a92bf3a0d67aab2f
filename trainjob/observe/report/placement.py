"""The plan's picture as a page draws it: hosts, their instances, each with its samples, replicas and devices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from trainjob.cluster import slurm_text
from trainjob.contract.batch import share
from trainjob.records.events import Attempt
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


def hosts(plan: Plan, attempts: Sequence[Attempt] = ()) -> list[Host]:
    """Return the first hosts of a plan, under the names of the nodes that the newest attempt got, if it noted them."""
    each = plan.topology.instances_of_hosts
    used = slurm_text.expand(attempts[-1].nodes) if attempts and attempts[-1].nodes else []
    names = (used if len(used) == len(each) else slurm_text.expand(plan.topology.hosts))[:MOST_HOSTS]
    drawn = []
    for name, first, count in zip(names, accumulate(each, initial=0), each, strict=False):
        shown = range(min(count, MOST_INSTANCES))
        instances = [_instance(plan, first + local, local) for local in shown]
        drawn.append(Host(name, instances, count - len(shown)))
    return drawn


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

    first = topology.first_device(index, local)

    def devices(start: int, number: int) -> str:
        named = f"{start}" if number == 1 else f"{start}–{start + number - 1}"
        return f"{topology.device}{'s' if number > 1 else ''} {named}" if number else topology.device

    if count > _MOST_REPLICAS:
        of_them = f"{devices(first, count * each)}, {each} each" if each else topology.device
        yield f"replicas {index * count}–{(index + 1) * count - 1} → {of_them}"
        return
    for replica in range(count):
        yield f"replica {index * count + replica} → {devices(first + replica * each, each)}"
