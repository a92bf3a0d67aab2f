"""The same job on several numbers of instances: time an epoch, efficiency, and the share of time waiting for data."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from trainjob.contract.errors import UserError
from trainjob.contract.files import read_json_lines
from trainjob.contract.paths import RunPaths
from trainjob.runs.experiment import Workbench
from trainjob.runs.prune import remove_run

_WARM_UP_EPOCHS = 1


@dataclass(frozen=True)
class Scale:
    """One number of instances. Times are medians over the epochs after the first, which warms up."""

    instances: int
    global_batch: int
    epochs: int  # measured
    seconds_per_epoch: float
    fastest_epoch_s: float
    slowest_epoch_s: float
    samples_per_s: float
    efficiency: float  # samples/s ÷ (instances × samples/s of the first row ÷ its instances)
    data_share: float  # of the time, waiting for data
    communication_share: float

    def as_json(self) -> dict[str, Any]:
        """Return the row for `--json`."""
        return asdict(self)


@dataclass(frozen=True)
class Epoch:
    """What one epoch took, in seconds by phase, and how many samples it trained."""

    samples: int
    seconds: Mapping[str, float]

    @property
    def total_s(self) -> float:
        """Seconds of training in all phases."""
        return sum(self.seconds.values())


def scaling(workbench: Workbench, numbers: Sequence[int], *, epochs: int) -> Iterator[Scale]:
    """Yield one row for each number of instances, in order; every instance takes the micro batch asked for.

    Raises Refusal for a number that can't be planned, UserError when a run fails.
    """
    workbench.refuse_command()
    first: Scale | None = None
    for instances in numbers:
        row = measure(workbench, instances, epochs, first, {})
        first = first or row
        yield row


def measure(
    workbench: Workbench, instances: int, epochs: int, first: Scale | None, changes: Mapping[str, Any]
) -> Scale:
    """Return the row of one number of instances, with some settings of the job changed; `first` is 100 % efficient.

    Raises Refusal, or UserError when the run fails.
    """
    request = workbench.vary(
        instances=instances,
        epochs=epochs + _WARM_UP_EPOCHS,
        updates=None,
        checkpoint_every=0,
        log_every=_updates_per_epoch(workbench, instances, changes),
        **changes,
    )
    batch = request.plan.batch
    if batch is None:
        raise UserError("bench scaling trains tasks of the runtime: a command's epochs can't be seen from outside")
    paths = workbench.run(request)
    measured = list(epochs_of(paths, batch.global_batch))[_WARM_UP_EPOCHS:]
    if not measured:
        raise UserError(f"run {paths.id} left no epoch to measure: look at `trainjob logs {paths.id}`")
    remove_run(paths)
    return _scale(instances, batch.global_batch, measured, first)


def _updates_per_epoch(workbench: Workbench, instances: int, changes: Mapping[str, Any]) -> int:
    batch = workbench.vary(instances=instances, **changes).plan.batch
    if batch is None or batch.updates_per_epoch is None:
        raise UserError("bench scaling needs to know how long an epoch is: give --samples")
    return batch.updates_per_epoch


def epochs_of(paths: RunPaths, global_batch: int) -> Iterator[Epoch]:
    """Yield what each epoch took, from metrics.jsonl with one line an epoch."""
    before = 0
    for line in read_json_lines(paths.metrics):
        if line.get("kind") == "train":
            yield Epoch((line["update"] - before) * global_batch, line["seconds"])
            before = line["update"]


def _scale(instances: int, global_batch: int, measured: Sequence[Epoch], first: Scale | None) -> Scale:
    seconds = [epoch.total_s for epoch in measured]
    rate = statistics.median(epoch.samples / epoch.total_s for epoch in measured)
    rate_of_one = rate / instances if first is None else first.samples_per_s / first.instances
    return Scale(
        instances=instances,
        global_batch=global_batch,
        epochs=len(measured),
        seconds_per_epoch=statistics.median(seconds),
        fastest_epoch_s=min(seconds),
        slowest_epoch_s=max(seconds),
        samples_per_s=rate,
        efficiency=rate / (instances * rate_of_one),
        data_share=_share(measured, "data"),
        communication_share=_share(measured, "communication"),
    )


def _share(measured: Sequence[Epoch], phase: str) -> float:
    return statistics.median(epoch.seconds.get(phase, 0.0) / epoch.total_s for epoch in measured)
