"""A rehearsed job of a pod: how fast its instances load data, and the four steps of the IPU lessons.

The steps: one replica; eight in one process; with workers; four instances of two.
"""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from trainjob.bench.loader import MODULE
from trainjob.bench.scaling import Epoch, epochs_of
from trainjob.contract import states
from trainjob.contract.batch import Batch
from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths
from trainjob.planning.words import quantity
from trainjob.records.measures import read_measurement
from trainjob.rehearse import kinds
from trainjob.rehearse.base import Rehearsal, rehearsal
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

    def as_json(self) -> dict[str, Any]:
        """Return the row for `--json`."""
        return asdict(self)


def loading(workbench: Workbench, workers: Sequence[int], *, seconds: float) -> Iterator[PodLoading]:
    """Yield the rate of the job with each number of workers. Raises UserError."""
    for number in workers:
        yield _row(workbench, number, seconds)


def changed(workbench: Workbench, settings: dict[str, Any], runtime: tuple[str, ...] | None = None) -> Rehearsal:
    """Return the rehearsal of the job with some settings changed; its ranks run the module `runtime`, if given."""
    prepared = workbench.prepared.changed(**settings)
    if runtime is not None:
        prepared = dataclasses.replace(prepared, request=dataclasses.replace(prepared.request, runtime=runtime))
    return rehearsal(prepared, folder=workbench.folder)


def _row(workbench: Workbench, workers: int, seconds: float) -> PodLoading:
    runtime = (MODULE, "--seconds", f"{seconds:g}", "--workers", str(workers), "--")
    trial = changed(workbench, {"workers": workers}, runtime)
    workbench.say(f"{quantity(workers, 'loader worker')} …")
    verdict = kinds.rehearse(trial)
    measured = read_measurement(RunPaths(verdict.folder))
    if verdict.state != states.COMPLETED or measured is None:
        raise UserError(
            f"the rehearsal in {verdict.folder} left no measurement: {verdict.outcome}",
            f"see why: trainjob logs {verdict.folder}",
        )
    shutil.rmtree(verdict.folder, ignore_errors=True)
    topology, batch = trial.request.plan.topology, trial.request.plan.batch
    rate = measured["rows"][0]["samples_per_s"]
    steps = batch.blocks_per_epoch if batch else None
    samples = steps * batch.block if batch and steps else None
    return PodLoading(topology.instances, topology.replicas, workers, steps, rate, samples / rate if samples else None)


_WORKERS = 4
# Instances, replicas over all of them, loader workers of each instance; the lesson's own seconds per epoch on a POD16.
STEPS = ((1, 1, 0, 6.0), (1, 8, 0, 6.0), (1, 8, _WORKERS, 2.5), (4, 8, _WORKERS, 1.6))
# What the lessons train: batches of 64 of 50,000 images, 8 micro batches to an update, 4 updates to a loader step.
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
class Step:
    """One of the four steps. Means over its epochs after the first: what is loaded ahead is used in the next."""

    instances: int
    replicas: int
    workers: int
    loader_steps: float  # of an epoch, counted
    seconds_per_epoch: float
    samples_per_s: float
    data_share: float  # of the time, waiting for data
    lesson_seconds_per_epoch: float

    def as_json(self) -> dict[str, Any]:
        """Return the row for `--json`."""
        return asdict(self)


def lessons(workbench: Workbench) -> Iterator[Step]:
    """Yield the four steps. Raises UserError if one fails."""
    for instances, replicas, workers, lesson_s in STEPS:
        changes = {"instances": instances, "replicas": replicas, "workers": workers, "updates": None}
        counts = ((instances, "instance"), (replicas, "replica"), (workers, "loader worker"))
        workbench.say(", ".join(quantity(count, word) for count, word in counts) + " …")
        changes |= {"epochs": _WARM_UP_EPOCHS + _EPOCHS, "checkpoint_every": 0}
        an_epoch = _batch(changed(workbench, changes)).updates_per_epoch
        yield _step(changed(workbench, {**changes, "log_every": an_epoch}), lesson_s)


def _batch(trial: Rehearsal) -> Batch:
    batch = trial.request.plan.batch
    if batch is None or batch.updates_per_epoch is None:
        raise UserError("the lessons' steps train a task whose data set's size is known", "give --samples")
    return batch


def _step(trial: Rehearsal, lesson_s: float) -> Step:
    verdict = kinds.rehearse(trial)
    if verdict.state != states.COMPLETED:
        raise UserError(
            f"the rehearsal in {verdict.folder} failed: {verdict.outcome}", f"see why: trainjob logs {verdict.folder}"
        )
    epochs = list(epochs_of(RunPaths(verdict.folder), _batch(trial).global_batch))[_WARM_UP_EPOCHS:]
    shutil.rmtree(verdict.folder, ignore_errors=True)
    return _mean(trial, epochs, lesson_s)


def _mean(trial: Rehearsal, epochs: Sequence[Epoch], lesson_s: float) -> Step:
    topology, total_s = trial.request.plan.topology, sum(epoch.total_s for epoch in epochs)
    samples = sum(epoch.samples for epoch in epochs)
    return Step(
        instances=topology.instances,
        replicas=topology.replicas,
        workers=trial.request.job.workers or 0,
        loader_steps=samples / _batch(trial).block / len(epochs),
        seconds_per_epoch=total_s / len(epochs),
        samples_per_s=samples / total_s,
        data_share=sum(epoch.seconds.get("data", 0.0) for epoch in epochs) / total_s,
        lesson_seconds_per_epoch=lesson_s,
    )
