"""The batch: micro batch × accumulation × replicas, device iterations, epochs."""

from __future__ import annotations

from trainjob.cluster.job import Job
from trainjob.contract.batch import Batch
from trainjob.contract.tasks import TaskFacts
from trainjob.plan import work
from trainjob.plan.counts import Counts
from trainjob.plan.rules import Knob, refuse
from trainjob.plan.words import number, quantity

DIVIDES = "the global batch is a multiple of micro batch × replicas"
PIPELINE_IS_FULL = "a model split over n IPUs accumulates at least 2n − 1 micro batches"
ITERATIONS = "only IPUs make several updates between two returns to the host"
ONE_UPDATE = "an epoch has at least one update"
ENOUGH_SAMPLES = "every loader process has at least one sample"


def batch(job: Job, task: TaskFacts, counts: Counts) -> Batch:
    """Return the arithmetic of the job's batch. Raises Broken."""
    micro_batch = job.micro_batch if job.micro_batch is not None else task.micro_batch
    worked_out = Batch(
        micro_batch=micro_batch,
        accumulation=_accumulation(job, counts, micro_batch),
        replicas=counts.replicas,
        device_iterations=_device_iterations(job, counts),
        samples=work.samples(job, task),
        remainder=job.remainder,
        epochs=job.epochs if job.epochs is not None or job.updates is not None else task.epochs,
        updates=job.updates,
    )
    _has_an_update(job, counts, worked_out)
    return worked_out


def least_accumulation(stages: int) -> int:
    """Return the fewest micro batches that fill the pipeline of a model split over `stages` IPUs (PopTorch)."""
    return 2 * stages - 1


def _accumulation(job: Job, counts: Counts, micro_batch: int) -> int:
    least = least_accumulation(counts.stages)
    if job.global_batch is not None:
        accumulation = _from_global_batch(job.global_batch, micro_batch, counts.replicas, least)
    else:
        accumulation = job.accumulation if job.accumulation is not None else least
    if accumulation < least:
        unit = micro_batch * counts.replicas
        asked_for_samples = job.global_batch is not None
        knob = Knob("global_batch", job.global_batch or 0, (least * unit,))
        found = f"{counts.stages} IPUs, accumulation {accumulation}, at least {least}"
        refuse(PIPELINE_IS_FULL, found, knob if asked_for_samples else Knob("accumulation", accumulation, (least,)))
    return accumulation


def _from_global_batch(global_batch: int, micro_batch: int, replicas: int, least: int) -> int:
    unit = micro_batch * replicas
    if global_batch % unit:
        found = f"global batch {number(global_batch)}, {micro_batch} × {quantity(replicas, 'replica')} = {number(unit)}"
        multiples = (global_batch // unit * unit, -(-global_batch // unit) * unit, least * unit)
        refuse(DIVIDES, found, Knob("global_batch", global_batch, multiples), Knob("micro_batch", micro_batch))
    return global_batch // unit


def _device_iterations(job: Job, counts: Counts) -> int:
    iterations = job.device_iterations if job.device_iterations is not None else 1
    if iterations > 1 and counts.device_word != "IPU":
        found = f"device_iterations is {iterations} on {counts.device_word}s"
        refuse(ITERATIONS, found, Knob("device_iterations", iterations, (1,)))
    return iterations


def _has_an_update(job: Job, counts: Counts, batch: Batch) -> None:
    if batch.blocks_per_epoch != 0:
        return
    samples = batch.samples or 0
    found = f"a block takes {_product(batch)} = {number(batch.block)} samples, the data set has {number(samples)}"
    refuse(ONE_UPDATE, found, *_smaller(job, counts, batch, samples), otherwise="Or --remainder pad.")


def _product(batch: Batch) -> str:
    product = f"{batch.micro_batch} micro × {batch.accumulation} accumulation × {batch.replicas} replicas"
    return product if batch.device_iterations == 1 else product + f" × {batch.device_iterations} device iterations"


def _smaller(job: Job, counts: Counts, batch: Batch, samples: int) -> tuple[Knob, ...]:
    """Return the factors of a block, each with the largest value that leaves one block."""

    def largest(setting: str, factor: int) -> Knob:
        return Knob(setting, factor, (samples * factor // batch.block,))

    knobs = [largest("device_iterations", batch.device_iterations)]
    if job.global_batch is not None:
        unit = batch.micro_batch * batch.replicas
        knobs.append(Knob("global_batch", job.global_batch, (samples // batch.device_iterations // unit * unit,)))
    else:
        knobs += [largest("micro_batch", batch.micro_batch), largest("accumulation", batch.accumulation)]
    many = "replicas" if counts.device_word == "IPU" else "instances"
    return (*knobs, largest(many, batch.replicas))


def split(instances: int, workers: int, samples: int) -> int:
    """Return the most samples of an epoch that one loader process reads. Raises Broken where one would have none.

    An instance without workers loads by itself, so that is one process too.
    """
    loaders = instances * max(1, workers)
    if loaders > samples:
        found = f"{quantity(instances, 'instance')} × {max(1, workers)} = {number(loaders)} loader processes"
        knobs = [Knob("instances", instances, (samples // max(1, workers),))]
        if workers > 1:
            knobs.append(Knob("workers", workers, (samples // instances,)))
        # Fewer instances and fewer workers together may be needed, which no single setting offers.
        enough = f"Or give {number(loaders)} samples or more."
        refuse(ENOUGH_SAMPLES, f"{found} and {quantity(samples, 'sample')}", *knobs, otherwise=enough)
    return -(-samples // loaders)
