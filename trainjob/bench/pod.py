"""Measures a pod's rehearsed job: how fast its instances load data, and the four steps of the IPU lessons.

The steps: one replica; eight in one process; with workers; four instances of two.
"""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from trainjob.bench.parts import LOADER
from trainjob.bench.scaling import epochs_of
from trainjob.contract import states
from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths
from trainjob.planning.words import quantity
from trainjob.records.measures import MEASUREMENT, read_measurement
from trainjob.rehearse import kinds
from trainjob.rehearse.base import rehearsal
from trainjob.requests.prepared import Prepared
from trainjob.requests.workbench import Workbench


@dataclass(frozen=True)
class PodLoading:
    """One way to load. `steps` and `seconds_per_epoch` are of an epoch; rates are summed over the instances."""

    instances: int
    replicas: int
    workers: int
    steps: int | None
    samples_per_s: float
    seconds_per_epoch: float | None


def loading(workbench: Workbench, workers: Sequence[int], *, seconds: float) -> Iterator[PodLoading]:
    """Yield the rate of the job with each number of workers. Raises UserError."""
    for number in workers:
        workbench.say(f"{quantity(number, 'loader worker')} …")
        runtime = (*LOADER, "--seconds", f"{seconds:g}", "--workers", str(number), "--")
        prepared = workbench.prepared.changed(workers=number)
        paths = _rehearsed(
            workbench, dataclasses.replace(prepared, request=dataclasses.replace(prepared.request, runtime=runtime))
        )
        measured = read_measurement(paths)
        if measured is None:
            raise UserError(f"{paths.folder} has no {MEASUREMENT}", f"see why: trainjob logs {paths.folder}")
        shutil.rmtree(paths.folder, ignore_errors=True)
        topology, batch = prepared.request.plan.topology, prepared.request.plan.batch
        rate = measured["rows"][0]["samples_per_s"]
        steps = batch.blocks_per_epoch if batch else None
        samples = steps * batch.block if batch and steps else None
        seconds_per_epoch = samples / rate if samples else None
        yield PodLoading(topology.instances, topology.replicas, number, steps, rate, seconds_per_epoch)


def _rehearsed(workbench: Workbench, prepared: Prepared) -> RunPaths:
    """Return the run directory of a rehearsal. Raises UserError if it failed."""
    verdict = kinds.rehearse(rehearsal(prepared, into=workbench.folder))
    if verdict.state != states.COMPLETED:
        raise UserError(
            f"the rehearsal in {verdict.folder} failed: {verdict.outcome}", f"see why: trainjob logs {verdict.folder}"
        )
    return RunPaths(verdict.folder)


_WORKERS = 4
# Instances, replicas over all of them, loader workers of each instance; the lesson's own seconds per epoch on a POD16.
STEPS = ((1, 1, 0, 6.0), (1, 8, 0, 6.0), (1, 8, _WORKERS, 2.5), (4, 8, _WORKERS, 1.6))
# The lessons' job: batches of 64 of 50,000 images, 8 micro batches to an update, 4 updates to a loader step.
JOB = {
    "task": "trainjob.train.tasks.lessons:Lessons",
    "samples": 50_000,
    "instances": 1,
    "replicas": 8,
    "micro_batch": 64,
    "accumulation": 8,
    "device_iterations": 4,
    "eight_bit_io": True,
    # A stand-in's replicas are computed one after the other: by one thread, so that the steps compare.
    "env": {"OMP_NUM_THREADS": "1"},
}
_WARM_UP_EPOCHS = 1  # compiles, starts workers, and loads ahead
_EPOCHS = 3


@dataclass(frozen=True)
class LessonStep:
    """One of the four steps. Means over its epochs after the first: what is loaded ahead is used in the next."""

    instances: int
    replicas: int
    workers: int
    loader_steps: float  # of an epoch, counted
    seconds_per_epoch: float
    samples_per_s: float
    data_share: float  # of the time, waiting for data
    lesson_seconds_per_epoch: float


def lessons(workbench: Workbench) -> Iterator[LessonStep]:
    """Yield the four steps. Raises UserError if one fails."""
    for instances, replicas, workers, lesson_s in STEPS:
        counts = ((instances, "instance"), (replicas, "replica"), (workers, "loader worker"))
        workbench.say(", ".join(quantity(count, word) for count, word in counts) + " …")
        prepared = workbench.prepared.changed(
            instances=instances,
            replicas=replicas,
            workers=workers,
            updates=None,
            epochs=_WARM_UP_EPOCHS + _EPOCHS,
            checkpoint_every=0,
        )
        batch = prepared.request.plan.batch
        if batch is None or batch.updates_per_epoch is None:
            raise UserError("the lessons' steps train a task whose data set's size is known", "give --samples")
        paths = _rehearsed(workbench, prepared.changed(log_every=batch.updates_per_epoch))
        epochs = list(epochs_of(paths, batch.global_batch))[_WARM_UP_EPOCHS:]
        shutil.rmtree(paths.folder, ignore_errors=True)
        total_s, samples = sum(epoch.total_s for epoch in epochs), sum(epoch.samples for epoch in epochs)
        yield LessonStep(
            instances=instances,
            replicas=replicas,
            workers=workers,
            loader_steps=samples / batch.block / len(epochs),
            seconds_per_epoch=total_s / len(epochs),
            samples_per_s=samples / total_s,
            data_share=sum(epoch.seconds.get("data", 0.0) for epoch in epochs) / total_s,
            lesson_seconds_per_epoch=lesson_s,
        )
