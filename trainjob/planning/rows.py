"""The plan's arithmetic as rows of two columns: the quantity, and how it is computed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from trainjob.cluster.job import Job
from trainjob.contract import steps
from trainjob.contract.batch import Batch
from trainjob.planning import words
from trainjob.planning.batch import split
from trainjob.planning.limits import TimeLimits
from trainjob.planning.words import number, quantity
from trainjob.records.job import Plan, Topology

LATER = "known when it runs"


def arithmetic(plan: Plan) -> list[tuple[str, str]]:
    """Return the rows of `plan`'s table, top to bottom."""
    rows = [("engine", plan.engine), *_topology(plan.topology)]
    if plan.batch is not None:
        rows += _batch(plan.batch)
    if plan.learning_rate_effect is not None:
        effect = plan.learning_rate_effect
        rows.append(("learning rate", f"× {number(effect.factor)}: {effect.because}"))
    return [*rows, *plan.facts.items()]


def differing(before: Plan, after: Plan) -> list[tuple[str, str, str]]:
    """Return the rows in which two plans differ: the quantity, and what it is in each; "" where a plan has none."""
    first, second = dict(arithmetic(before)), dict(arithmetic(after))
    return [
        (name, first.get(name, ""), second.get(name, ""))
        for name in dict.fromkeys([*first, *second])
        if first.get(name) != second.get(name)
    ]


def facts(topology: Topology, batch: Batch | None, workers: int) -> Iterator[tuple[str, str]]:
    """Yield rows about the partition, the samples of an instance, and the loader processes."""
    if topology.ilds is not None:
        used = f"{topology.devices} of {topology.partition_ipus} IPUs"
        yield "partition", f"{used}, {quantity(topology.ilds, 'IPU-Link domain')}"
    if batch is not None:
        size = batch.global_batch // topology.instances
        yield "samples per instance", f"{number(size)} of every global batch of {number(batch.global_batch)}"
    if batch is not None and batch.samples is not None:
        loaders = f"{quantity(topology.instances, 'instance')} × {max(1, workers)}"
        most = split(topology.instances, workers, batch.samples)
        yield "loader processes", f"{loaders}, each at most {quantity(most, 'sample')} per epoch"


def before_ranks(job: Job) -> Iterator[tuple[str, str]]:
    """Yield the row of the steps that run before ranks start."""
    where = {steps.JOB: "once for the run", steps.NODE: "on each host"}
    found = [
        f"{step.name} {where[step.scope]}, within {words.seconds(step.timeout_s)}" for step in steps.parse(job.once)
    ]
    if found:
        yield "before ranks", "; ".join(found)


def threads(
    topology: Topology, cpus: Sequence[int], environment: Mapping[str, str], limits: Mapping[str, str]
) -> tuple[str, str]:
    """Return the row about the threads of an instance; `cpus` is empty if only its host knows how many it gets."""
    chosen = environment.get("OMP_NUM_THREADS")
    if chosen is not None:
        return "threads", f"{chosen} in each instance: OMP_NUM_THREADS of the job's environment"
    if limits:
        return "threads", "1 in each instance: its micro batches keep no more busy"
    ranks = 1 if topology.device == "IPU" else topology.replicas_per_instance
    if cpus and ranks > 1:
        return "threads", f"{' or '.join(number(max(1, count // ranks)) for count in cpus)} in each rank"
    if cpus:
        return "threads", f"{' or '.join(map(number, cpus))} in each instance, one for each CPU of its own"
    return "threads", f"CPUs of a host ÷ {quantity(topology.instances_per_host, 'instance')}, {LATER}"


def cost(devices: int, device: str, times: TimeLimits, price: float | None) -> Iterator[tuple[str, str]]:
    """Yield the row of device-hours, and the price if the cluster file has one."""
    if not devices:
        return
    all_hours = None if times.limit_s is None else devices * times.limit_s / 3600
    word = f"{device}-hour"
    most = "" if all_hours is None else f", at most {all_hours:,.1f} by the time limit {times.limit}"
    yield "device-hours", f"{quantity(devices, word)} for each hour of training{most}"
    if price is not None:
        most = "" if all_hours is None else f", at most {all_hours * price:,.2f}"
        yield "price", f"{devices * price:,.2f} for each hour of training{most}, at {price:g} for each {word}"


def _topology(topology: Topology) -> Iterator[tuple[str, str]]:
    word, each = topology.device, topology.replicas_per_instance
    yield "hosts", f"{number(topology.host_count)}: {topology.hosts}"
    products = [f"{quantity(topology.host_count, 'host')} × {topology.instances_per_host}"]
    if topology.groups:
        products = [f"{quantity(one.hosts, 'host')} × {one.instances_per_host} ({one.name})" for one in topology.groups]
    yield "instances", f"{number(topology.instances)} = {' + '.join(products)}"
    yield "replicas", f"{number(topology.replicas)} = {quantity(topology.instances, 'instance')} × {each}"
    if topology.devices_per_replica:
        product = f"{quantity(topology.replicas, 'replica')} × {topology.devices_per_replica}"
        yield f"{word}s", f"{number(topology.devices)} = {product}"


def _batch(batch: Batch) -> Iterator[tuple[str, str]]:
    product = f"{batch.micro_batch} micro × {batch.accumulation} accumulation × {quantity(batch.replicas, 'replica')}"
    yield "global batch", f"{product} = {quantity(batch.global_batch, 'sample')}"
    if batch.device_iterations > 1:
        iterations = f"{batch.device_iterations} device iterations × {number(batch.global_batch)}"
        yield "block", f"{iterations} = {quantity(batch.block, 'sample')} between two returns to the host"
    pads, per_epoch = batch.remainder == "pad", batch.updates_per_epoch
    if batch.samples is None or per_epoch is None:
        yield "samples", LATER
        yield "updates per epoch", LATER
    else:
        blocks = f"{'ceil' if pads else 'floor'}({number(batch.samples)} ÷ {number(batch.block)})"
        times = f"{batch.device_iterations} × " if batch.device_iterations > 1 else ""
        yield "samples", number(batch.samples)
        yield "updates per epoch", f"{number(per_epoch)} = {times}{blocks}"
        if pads:
            yield "padded", f"{quantity(batch.padded or 0, 'sample')} of every epoch seen twice"
        else:
            yield "dropped", f"{quantity(batch.dropped or 0, 'sample')} of every epoch"
    epochs = quantity(batch.epochs or 0, "epoch")
    if batch.updates is not None:
        yield "updates", f"{number(batch.updates)}, as requested"
    elif batch.total_updates is None:
        yield "updates", f"{epochs}, {LATER}"
    else:
        yield "updates", f"{number(batch.total_updates)} = {epochs} × {number(per_epoch or 0)}"
