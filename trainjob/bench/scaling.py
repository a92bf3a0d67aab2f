"""The same job on several numbers of instances: time an epoch, efficiency, and the share of time waiting for data.

Every number is measured several times, in turns, so that a machine that slows down for a while slows down all of them.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from trainjob.contract.batch import Batch
from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths
from trainjob.records import metrics
from trainjob.requests.workbench import Workbench

_WARM_UP_EPOCHS = 1
_SHOWN_PHASES = ("data", "communication")
_MOST_EFFICIENT = 1.2  # caches make more than 100 % possible


@dataclass(frozen=True)
class Scale:
    """One number of instances. Times are medians over the epochs after the first of each run, which warms up."""

    instances: int
    global_batch: int
    epochs: int  # measured, over all runs
    seconds_per_epoch: float
    fastest_epoch_s: float
    slowest_epoch_s: float
    samples_per_s: float
    efficiency: float  # samples/s ÷ (instances × samples/s of the first row ÷ its instances)
    data_share: float  # of the time, waiting for data
    communication_share: float
    samples_per_s_low: float  # the 90 % interval of the median of samples/s, over runs
    samples_per_s_high: float
    noise: str | None = None  # why the figures prove nothing, although they were measured twice


@dataclass(frozen=True)
class Epoch:
    """One epoch: its samples, and its seconds by phase."""

    samples: int
    seconds: Mapping[str, float]

    @property
    def total_s(self) -> float:
        """Seconds of training in all phases."""
        return sum(self.seconds.values())


def scaling(workbench: Workbench, numbers: Sequence[int], *, epochs: int, repeats: int = 1) -> list[Scale]:
    """Return one row for each number of instances, in order; every instance takes the requested micro batch.

    Raises Refusal for a number that can't be planned, UserError when a run fails.
    """
    workbench.refuse_command()
    for number in numbers:
        _batch_of(workbench, number)  # what can't be measured is refused before anything is
    runs: dict[int, list[list[Epoch]]] = {number: [] for number in numbers}
    batches = {}
    turns = list(runs) * repeats
    for turn, number in enumerate(turns, start=1):
        workbench.say(f"measurement {turn} of {len(turns)}")
        batches[number], measured = epochs_at(workbench, number, epochs)
        runs[number].append(measured)
    first = scale_of(numbers[0], batches[numbers[0]], runs[numbers[0]], None)
    rows = [first]
    for number in list(runs)[1:]:
        row = scale_of(number, batches[number], runs[number], first)
        if implausible(row, first):
            workbench.say("these figures are implausible: measuring again")
            runs[number].append(epochs_at(workbench, number, epochs)[1])
            row = scale_of(number, batches[number], runs[number], first)
            row = replace(row, noise=implausible(row, first))
        rows.append(row)
    return rows


def implausible(row: Scale, first: Scale) -> str | None:
    """Return why a row can't be compared with the first one; None if it can."""
    if row.efficiency > _MOST_EFFICIENT:
        return f"an efficiency of {100 * row.efficiency:.0f} % means that something else slowed down the first row"
    apart_s = abs(row.seconds_per_epoch - first.seconds_per_epoch)
    spread_s = max(one.slowest_epoch_s - one.fastest_epoch_s for one in (row, first))
    if row.instances != first.instances and spread_s > apart_s:
        return f"epochs of one row differ by {spread_s:.3f} s, and the rows by {apart_s:.3f} s"
    return None


def epochs_at(workbench: Workbench, instances: int, epochs: int) -> tuple[int, list[Epoch]]:
    """Return the global batch and the epochs of one run after its warm-up.

    Raises Refusal, or UserError when the run fails.
    """
    batch = _batch_of(workbench, instances)
    request = workbench.vary(
        instances=instances,
        epochs=epochs + _WARM_UP_EPOCHS,
        updates=None,
        checkpoint_every=0,
        log_every=batch.updates_per_epoch,
    )
    paths = workbench.run(request)
    measured = list(epochs_of(paths, batch.global_batch))[_WARM_UP_EPOCHS:]
    if not measured:
        raise UserError(f"run {paths.id} left no epoch to measure", f"see why: trainjob logs {paths.folder}")
    workbench.discard(paths)
    return batch.global_batch, measured


def _batch_of(workbench: Workbench, instances: int) -> Batch:
    batch = workbench.vary(instances=instances).plan.batch
    if batch is None or batch.updates_per_epoch is None:
        raise UserError("bench scaling needs to know how long an epoch is", "give --samples")
    return batch


def epochs_of(paths: RunPaths, global_batch: int) -> Iterator[Epoch]:
    """Yield the epochs of a run whose metrics.jsonl has one line an epoch."""
    before = 0
    for line in metrics.read(paths):
        if line.kind == "train":
            yield Epoch((line.update - before) * global_batch, line.phases)
            before = line.update


def scale_of(instances: int, global_batch: int, runs: Sequence[Sequence[Epoch]], first: Scale | None) -> Scale:
    """Return the row of one number of instances from the epochs of its runs; `first` is 100 % efficient."""
    measured = [epoch for run in runs for epoch in run]
    low, high = interval([[epoch.samples / epoch.total_s for epoch in run] for run in runs])
    seconds = [epoch.total_s for epoch in measured]
    rate = statistics.median(epoch.samples / epoch.total_s for epoch in measured)
    shares = [[epoch.seconds.get(phase, 0.0) / epoch.total_s for epoch in measured] for phase in _SHOWN_PHASES]
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
        data_share=statistics.median(shares[0]),
        communication_share=statistics.median(shares[1]),
        samples_per_s_low=low,
        samples_per_s_high=high,
    )


def interval(rates: Sequence[Sequence[float]]) -> tuple[float, float]:
    """Return the 90 % interval of the middle rate. Epochs of one run are alike: each of several runs counts once."""
    each = [statistics.median(run) for run in rates] if len(rates) > 1 else list(rates[0])
    middle = statistics.median([rate for run in rates for rate in run])
    if len(each) < 2:
        return min(rates[0]), max(rates[0])
    spread = statistics.stdev(math.log(rate) for rate in each) / math.sqrt(len(each))
    factor = math.exp(student_95(max(2.0, len(each) - 1.0)) * spread)
    return middle / factor, middle * factor


def student_95(freedom: float) -> float:
    """Return the 95 % quantile of Student's t, by its expansion about the normal distribution: within 6 % from 2 on."""
    z = 1.6449  # 95 % of a normal distribution are below
    return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
