"""A plan as plain text: host → instance → replica → devices, the samples of each, and the steps of an update."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import TypeVar

from trainjob.cluster.job import Job
from trainjob.cluster.slurm_text import expand
from trainjob.contract.batch import Batch, share
from trainjob.planning.words import number, quantity, span
from trainjob.records.job import Plan, Topology

MOST_HOSTS = 6  # shown in full; of more hosts, only the first ones and the last
MOST_INSTANCES = 8
MOST_REPLICAS = 4  # of more replicas, one line describes all

Item = TypeVar("Item")


def picture(plan: Plan) -> Iterator[str]:
    """Yield the lines of the picture. A big plan shows the first few hosts, the number left out, and the last."""
    topology, size = plan.topology, plan.batch.global_batch if plan.batch else 0
    if plan.batch is None:
        yield "the command runs in every instance"
    else:
        yield f"D: the {quantity(size, 'sample')} of a global batch, new samples for every update"
    each, number_width = topology.instances_of_hosts, len(str(topology.instances - 1))
    hosts = list(zip(expand(topology.hosts), accumulate(each, initial=0), each, strict=False))
    for host in folded(hosts, MOST_HOSTS, "… {} more hosts like these"):
        if isinstance(host, str):
            yield host
            continue
        name, first, instances = host
        yield name
        for index in folded(range(first, first + instances), MOST_INSTANCES, "  … {} more instances like these"):
            if isinstance(index, str):
                yield index
                continue
            begin, end = share(size, topology.instances, index)
            samples = f"{f'D[{begin}:{end}]':<{len(f'D[{size}:{size}]')}}  " if plan.batch else ""
            replicas = ", ".join(replicas_of(topology, index, index - first))
            yield f"  instance {index:<{number_width}}  {samples}{replicas}"
    for server, placed in plan.servers.items():
        for name in folded(expand(placed.hosts), MOST_HOSTS, "… {} more hosts like these"):
            yield name
            yield f"  role {server} → {_devices(placed, placed.first_shared_device or 0, placed.devices_per_replica)}"


def replicas_of(topology: Topology, index: int, local_index: int) -> list[str]:
    """Return each replica of an instance with its devices; many replicas are described at once."""
    count, each = topology.replicas_per_instance, topology.devices_per_replica
    first, device = index * count, topology.first_device(index, local_index)
    if count > MOST_REPLICAS:
        places = f"{_devices(topology, device, count * each)}, {each} each" if each else topology.device
        return [f"replicas {span(first, first + count - 1)} → {places}"]
    each_place = (_devices(topology, device + replica * each, each) for replica in range(count))
    return [f"replica {replica} → {place}" for replica, place in enumerate(each_place, first)]


def _devices(topology: Topology, first: int, count: int) -> str:
    if not count:
        return topology.device
    return f"{topology.device}{'s' if count > 1 else ''} {span(first, first + count - 1)}"


def folded(items: Sequence[Item], most: int, left_out: str) -> Iterator[Item | str]:
    """Yield all items if there are at most `most`; else the first few, how many are left out, and the last."""
    if len(items) <= most:
        yield from items
        return
    yield from items[: most // 2]
    yield left_out.format(number(len(items) - most // 2 - 1))
    yield items[-1]


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
    device = plan.topology.device
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
    for part in folded(shares, MOST_SHARES, "  … {} more replicas like these"):
        if isinstance(part, str):
            yield part
        else:
            index, first, end = part
            yield f"  replica {index:<{width}}  D[{first}:{end}]"
    if plan.topology.device == "IPU" and plan.topology.replicas_per_instance > 1:
        yield "poptorch may take the micro batches of an instance in another order; the weights are the same"
