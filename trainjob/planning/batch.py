"""The batch: micro batch × accumulation × replicas, device iterations, epochs."""

from __future__ import annotations

from trainjob.cluster.job import Job
from trainjob.contract.batch import Batch
from trainjob.contract.tasks import TaskFacts
from trainjob.planning import work
from trainjob.planning.rules import Knob, refuse
from trainjob.planning.words import number, quantity
from trainjob.records.job import Topology

DIVIDES = "the global batch is a multiple of micro batch × replicas"
PIPELINE_IS_FULL = "a model split over n IPUs accumulates at least 2n − 1 micro batches"
ITERATIONS = "only IPUs make several updates between two returns to the host"
ONE_UPDATE = "an epoch has at least one update"
ENOUGH_SAMPLES = "every loader process has at least one sample"


def batch(job: Job, task: TaskFacts, counts: Topology) -> Batch:
    """Return the arithmetic of the job's batch. Raises Broken."""
    micro_batch = job.micro_batch if job.micro_batch is not None else task.micro_batch
    result = Batch.of(
        micro_batch=micro_batch,
        accumulation=_accumulation(job, counts, micro_batch),
        replicas=counts.replicas,
        device_iterations=_device_iterations(job, counts),
        samples=work.samples(job, task),
        remainder=job.remainder,
        epochs=job.epochs if job.epochs is not None or job.updates is not None else task.epochs,
        updates=job.updates,
    )
    _has_an_update(job, counts, result)
    return result


def least_accumulation(stages: int) -> int:
    """Return the fewest micro batches that fill the pipeline of a model split over `stages` IPUs (PopTorch)."""
    return 2 * stages - 1


def _accumulation(job: Job, counts: Topology, micro_batch: int) -> int:
    stages = max(1, counts.devices_per_replica)
    least = least_accumulation(stages)
    if job.global_batch is not None:
        accumulation = _from_global_batch(job.global_batch, micro_batch, counts.replicas, least)
    else:
        accumulation = job.accumulation if job.accumulation is not None else least
    if accumulation < least:
        unit = micro_batch * counts.replicas
        knob = Knob("accumulation", accumulation, (least,))
        if job.global_batch is not None:
            knob = Knob("global_batch", job.global_batch, (least * unit,))
        values = f"{stages} IPUs, accumulation {accumulation}, at least {least}"
        refuse(PIPELINE_IS_FULL, values, knob)
    return accumulation


def _from_global_batch(global_batch: int, micro_batch: int, replicas: int, least: int) -> int:
    unit = micro_batch * replicas
    if global_batch % unit:
        product = f"{micro_batch} × {quantity(replicas, 'replica')} = {number(unit)}"
        multiples = (global_batch // unit * unit, -(-global_batch // unit) * unit, least * unit)
        knobs = (Knob("global_batch", global_batch, multiples), Knob("micro_batch", micro_batch))
        refuse(DIVIDES, f"global batch {number(global_batch)}, {product}", *knobs)
    return global_batch // unit


def _device_iterations(job: Job, counts: Topology) -> int:
    iterations = job.device_iterations if job.device_iterations is not None else 1
    if iterations > 1 and counts.device != "IPU":
        values = f"device_iterations is {iterations} on {counts.device}s"
        refuse(ITERATIONS, values, Knob("device_iterations", iterations, (1,)))
    return iterations


def _has_an_update(job: Job, counts: Topology, batch: Batch) -> None:
    if batch.blocks_per_epoch != 0:
        return
    samples = batch.samples or 0
    product = f"{batch.micro_batch} micro × {batch.accumulation} accumulation × {batch.replicas} replicas"
    if batch.device_iterations > 1:
        product += f" × {batch.device_iterations} device iterations"
    values = f"a block takes {product} = {number(batch.block)} samples, the data set has {number(samples)}"
    refuse(ONE_UPDATE, values, *_smaller(job, counts, batch, samples), otherwise="Or --remainder pad.")


def _smaller(job: Job, counts: Topology, batch: Batch, samples: int) -> tuple[Knob, ...]:
    """Return the factors of a block, each with the largest value for which the data set still holds one block."""

    def largest(setting: str, factor: int) -> Knob:
        return Knob(setting, factor, (samples * factor // batch.block,))

    knobs = [largest("device_iterations", batch.device_iterations)]
    if job.global_batch is not None:
        unit = batch.micro_batch * batch.replicas
        knobs.append(Knob("global_batch", job.global_batch, (samples // batch.device_iterations // unit * unit,)))
    else:
        knobs += [largest("micro_batch", batch.micro_batch), largest("accumulation", batch.accumulation)]
    many = "replicas" if counts.device == "IPU" else "instances"
    return (*knobs, largest(many, batch.replicas))


def split(instances: int, workers: int, samples: int) -> int:
    """Return the most samples of an epoch that one loader process reads. Raises Broken if one would read none.

    An instance without workers loads its samples itself, and counts as one loader process.
    """
    loaders = instances * max(1, workers)
    if loaders > samples:
        values = f"{quantity(instances, 'instance')} × {max(1, workers)} = {number(loaders)} loader processes"
        knobs = [Knob("instances", instances, (samples // max(1, workers),))]
        if workers > 1:
            knobs.append(Knob("workers", workers, (samples // instances,)))
        # The cure may need fewer instances and fewer workers at once, but each offer changes a single setting.
        enough = f"Or give {number(loaders)} samples or more."
        refuse(ENOUGH_SAMPLES, f"{values} and {quantity(samples, 'sample')}", *knobs, otherwise=enough)
    return -(-samples // loaders)
