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
    iterations = job.device_iterations if job.device_iterations is not None else 1
    accumulation = _accumulation(job, counts, micro_batch)
    if iterations > 1 and counts.device != "IPU":
        values = f"device_iterations is {iterations} on {counts.device}s"
        refuse(ITERATIONS, values, Knob("device_iterations", iterations, (1,)))
    result = Batch.of(
        micro_batch=micro_batch,
        accumulation=accumulation,
        replicas=counts.replicas,
        device_iterations=iterations,
        samples=work.samples(job, task),
        remainder=job.remainder,
        epochs=job.epochs if job.epochs is not None or job.updates is not None else task.epochs,
        updates=job.updates,
    )
    if result.blocks_per_epoch == 0:
        product = f"{micro_batch} micro × {accumulation} accumulation × {counts.replicas} replicas"
        if iterations > 1:
            product += f" × {iterations} device iterations"
        samples = number(result.samples or 0)
        values = f"a block takes {product} = {number(result.block)} samples, the data set has {samples}"
        refuse(ONE_UPDATE, values, *_smaller(job, counts, result), otherwise="Or --remainder pad.")
    return result


def _accumulation(job: Job, counts: Topology, micro_batch: int) -> int:
    stages, unit = max(1, counts.devices_per_replica), micro_batch * counts.replicas
    # The fewest micro batches that fill the pipeline of a model split over so many IPUs (PopTorch).
    least, asked = 2 * stages - 1, job.global_batch
    if asked is not None and asked % unit:
        product = f"{micro_batch} × {quantity(counts.replicas, 'replica')} = {number(unit)}"
        multiples = (asked // unit * unit, -(-asked // unit) * unit, least * unit)
        knobs = (Knob("global_batch", asked, multiples), Knob("micro_batch", micro_batch))
        refuse(DIVIDES, f"global batch {number(asked)}, {product}", *knobs)
    if asked is not None:
        accumulation, knob = asked // unit, Knob("global_batch", asked, (least * unit,))
    else:
        accumulation = job.accumulation if job.accumulation is not None else least
        knob = Knob("accumulation", accumulation, (least,))
    if accumulation < least:
        refuse(PIPELINE_IS_FULL, f"{stages} IPUs, accumulation {accumulation}, at least {least}", knob)
    return accumulation


def _smaller(job: Job, counts: Topology, batch: Batch) -> tuple[Knob, ...]:
    """Return the factors of a block, each with the largest value for which the data set still holds one block."""
    samples = batch.samples or 0

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
