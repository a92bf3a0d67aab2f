"""A plan as plain text: host → instance → replica → devices, the samples of each, and the steps of an update."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from trainjob.cluster.job import Job
from trainjob.contract.batch import Batch, share
from trainjob.planning.values import Host, Instance, Plan, Replica
from trainjob.planning.words import number, quantity, span

MOST_HOSTS = 6  # shown in full; of more hosts, only the first ones and the last
MOST_INSTANCES = 8
MOST_REPLICAS = 4  # of more replicas, one line describes all

Item = TypeVar("Item")


def picture(plan: Plan) -> list[str]:
    """Return the lines of the picture. A big plan shows the first few hosts, the number left out, and the last."""
    if plan.batch is None:
        lines = ["the command runs in every instance"]
    else:
        samples = quantity(plan.batch.global_batch, "sample")
        lines = [f"D: the {samples} of a global batch, new samples for every update"]
    for part in folded(plan.topology.hosts, MOST_HOSTS):
        if isinstance(part, int):
            lines.append(f"… {number(part)} more hosts like these")
        else:
            lines += _host(plan, part)
    return lines


def _host(plan: Plan, host: Host) -> Iterator[str]:
    yield host.name
    for part in folded(host.instances, MOST_INSTANCES):
        yield f"  … {number(part)} more instances like these" if isinstance(part, int) else _instance(plan, part)


def _instance(plan: Plan, instance: Instance) -> str:
    number_width = len(str(plan.topology.instances - 1))
    replicas = _replicas(plan.topology.device_word, instance.replicas)
    return f"  instance {instance.index:<{number_width}}  {_samples(plan, instance)}{replicas}"


def _samples(plan: Plan, instance: Instance) -> str:
    if plan.batch is None:
        return ""
    size = plan.batch.global_batch
    first, end = share(size, plan.topology.instances, instance.index)
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


def folded(items: Sequence[Item], most: int) -> Iterable[Item | int]:
    """Return all items if there are at most `most`; else the first few, the number left out, and the last."""
    if len(items) <= most:
        return items
    first = most // 2
    return [*items[:first], len(items) - first - 1, items[-1]]


MOST_SHARES = 16  # listed in full; of more shares, only the first ones and the last

# How each engine exchanges gradients: step 6 of an update.
_EXCHANGE = {
    "ddp": "all instances all-reduce the gradients to their {kind}, in buckets of {bucket} MB while backward runs",
    "naive": "all instances all-reduce the gradients to their {kind}, one parameter after the other",
    "horovod": "Horovod all-reduces the gradients of all instances to their {kind}, fused as they become ready",
    "parameter-averaging": "gradients are not exchanged",
    "ipu": "all replicas all-reduce the gradients to their {kind} over the IPU-Links, within the compiled program",
}


def steps(plan: Plan, job: Job) -> list[str]:
    """Return the eight steps of one update, then the samples that each replica takes of a global batch."""
    if plan.batch is None:
        return ["what an update does is up to your own command"]
    listed = enumerate(_steps(plan, job, plan.batch), 1)
    return [*(f"{place}  {text}" for place, text in listed), "", *_shares(plan, plan.batch)]


def _steps(plan: Plan, job: Job, batch: Batch) -> Iterator[str]:
    device = plan.topology.device_word
    source = f"from {job.init_from}" if job.init_from else f"from seed {job.seed}"
    yield f"once: every instance starts with the same weights W0, {source}"
    yield "once: W0 stays in memory: CPUs train" if device == "CPU" else f"once: W0 is copied to every {device}"
    size = quantity(batch.accumulation, "micro batch", "micro batches")
    yield f"each replica takes its share of the global batch: {size} of {quantity(batch.micro_batch, 'sample')}"
    yield "forward and backward, one micro batch after the other"
    summed = f"gradients are {'summed' if job.reduction == 'sum' else 'averaged'} over the replica's {size}"
    yield summed if batch.accumulation > 1 else "one micro batch: nothing to add"
    exchange = "nothing is exchanged: there is one replica"
    if plan.topology.replicas > 1:
        exchange = _EXCHANGE[plan.engine].format(bucket=job.bucket_mb, kind=job.reduction)
    yield exchange
    again = f"; steps 3 to 7 run {batch.device_iterations} times before 8" if batch.device_iterations > 1 else ""
    step = "every replica takes the same optimizer step: W1 = step(W0, gradient)"
    if plan.engine == "parameter-averaging":
        step = "every instance steps by its own gradient; every fourth update all instances average their weights"
    yield f"{step}{again}"
    yield "losses return to the host; rank 0 logs their mean over all instances"


def _shares(plan: Plan, batch: Batch) -> Iterator[str]:
    replicas = plan.topology.replicas
    width = len(str(replicas - 1))
    yield f"share of a global batch of {quantity(batch.global_batch, 'sample')}, D[0:{batch.global_batch}]:"
    shares = [(index, *share(batch.global_batch, replicas, index)) for index in range(replicas)]
    for part in folded(shares, MOST_SHARES):
        if isinstance(part, int):
            yield f"  … {number(part)} more replicas like these"
        else:
            index, first, end = part
            yield f"  replica {index:<{width}}  D[{first}:{end}]"
    if plan.topology.device_word == "IPU" and plan.topology.replicas_per_instance > 1:
        yield "poptorch may take the micro batches of an instance in another order; the weights are the same"
