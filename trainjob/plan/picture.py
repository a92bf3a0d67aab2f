"""A plan as a picture in plain text: host → instance → replica → devices, and who takes which samples."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from trainjob.plan.shards import share
from trainjob.plan.values import Host, Instance, Plan, Replica
from trainjob.plan.words import number, quantity, span

MOST_HOSTS = 6  # shown in full; of more, the first ones and the last
MOST_INSTANCES = 8
MOST_REPLICAS = 4  # of more, one line says it of all

Item = TypeVar("Item")


def picture(plan: Plan) -> list[str]:
    """Return the lines of the picture. Big plans are folded: the first few, how many more are alike, the last."""
    lines = [_title(plan)]
    for part in _folded(plan.topology.hosts, MOST_HOSTS):
        if isinstance(part, int):
            lines.append(f"… {number(part)} more hosts alike")
        else:
            lines += _host(plan, part)
    return lines


def _title(plan: Plan) -> str:
    if plan.batch is None:
        return "the command runs in every instance"
    return f"D: the {quantity(plan.batch.global_batch, 'sample')} of a global batch, new ones for every update"


def _host(plan: Plan, host: Host) -> Iterator[str]:
    yield host.name
    for part in _folded(host.instances, MOST_INSTANCES):
        yield f"  … {number(part)} more instances alike" if isinstance(part, int) else _instance(plan, part)


def _instance(plan: Plan, instance: Instance) -> str:
    number_width = len(str(plan.topology.instances - 1))
    replicas = _replicas(plan.topology.device_word, instance.replicas)
    return f"  instance {instance.index:<{number_width}}  {_samples(plan, instance)}{replicas}"


def _samples(plan: Plan, instance: Instance) -> str:
    if plan.batch is None:
        return ""
    size = plan.batch.global_batch
    first, end = share(plan.batch, plan.topology.instances, instance.index)
    width = len(f"D[{size}:{size}]")
    return f"{f'D[{first}:{end}]':<{width}}  "


def _replicas(device_word: str, replicas: Sequence[Replica]) -> str:
    if len(replicas) <= MOST_REPLICAS:
        return ", ".join(f"replica {replica.index} → {_devices(device_word, replica.devices)}" for replica in replicas)
    first, last = replicas[0], replicas[-1]
    devices = _devices(device_word, (*first.devices, *last.devices))
    return f"replicas {span(first.index, last.index)} → {devices}, {len(first.devices)} each"


def _devices(device_word: str, devices: Sequence[int]) -> str:
    if not devices:
        return device_word
    word = device_word if len(devices) == 1 else device_word + "s"
    return f"{word} {span(devices[0], devices[-1])}"


def _folded(items: Sequence[Item], most: int) -> Iterable[Item | int]:
    """Return the items, or of more than `most` the first few, the number left out, and the last."""
    if len(items) <= most:
        return items
    first = most // 2
    return [*items[:first], len(items) - first - 1, items[-1]]
