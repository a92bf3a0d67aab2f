"""The IPU lessons' four steps, rehearsed: one replica; eight in one process; with workers; four instances of two."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from trainjob.bench.pod import Rehearsing
from trainjob.bench.scaling import Epoch, epochs_of
from trainjob.contract import states
from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths
from trainjob.plan.values import Batch
from trainjob.rehearse import kinds
from trainjob.rehearse.base import Rehearsal

_WORKERS = 4
# Instances, replicas over all of them, loader workers of each instance.
STEPS = ((1, 1, 0), (1, 8, 0), (1, 8, _WORKERS), (4, 8, _WORKERS))
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

    def as_json(self) -> dict[str, Any]:
        """Return the row for `--json`."""
        return asdict(self)


def lessons(rehearsing: Rehearsing) -> Iterator[Step]:
    """Yield the four steps. Raises UserError where one does not end well."""
    for instances, replicas, workers in STEPS:
        changes = {"instances": instances, "replicas": replicas, "workers": workers, "updates": None}
        changes |= {"epochs": _WARM_UP_EPOCHS + _EPOCHS, "checkpoint_every": 0}
        an_epoch = _batch(rehearsing(changes, None)).updates_per_epoch
        yield _step(rehearsing({**changes, "log_every": an_epoch}, None))


def _batch(asked: Rehearsal) -> Batch:
    batch = asked.request.plan.batch
    if batch is None or batch.updates_per_epoch is None:
        raise UserError("the lessons' steps train a task whose data set's size is known: give --samples")
    return batch


def _step(asked: Rehearsal) -> Step:
    verdict = kinds.rehearse(asked)
    if verdict.state != states.COMPLETED:
        raise UserError(f"the rehearsal in {verdict.folder} did not end well: {verdict.outcome}")
    epochs = list(epochs_of(RunPaths(verdict.folder), _batch(asked).global_batch))[_WARM_UP_EPOCHS:]
    shutil.rmtree(verdict.folder, ignore_errors=True)
    return _mean(asked, epochs)


def _mean(asked: Rehearsal, epochs: Sequence[Epoch]) -> Step:
    topology, total_s = asked.request.plan.topology, sum(epoch.total_s for epoch in epochs)
    samples = sum(epoch.samples for epoch in epochs)
    return Step(
        instances=topology.instances,
        replicas=topology.replicas,
        workers=asked.request.job.workers or 0,
        loader_steps=samples / _batch(asked).block / len(epochs),
        seconds_per_epoch=total_s / len(epochs),
        samples_per_s=samples / total_s,
        data_share=sum(epoch.seconds.get("data", 0.0) for epoch in epochs) / total_s,
    )
