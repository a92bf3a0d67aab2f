"""The scaling model, pure arithmetic.

    seconds of an update = micro batches × (compute + loader) + all-reduce of B bytes
    all-reduce           = 2 (N − 1) × latency + 2 (N − 1) ÷ N × B ÷ bandwidth
    seconds of a run     = start-up + updates × update + evaluations + checkpoints + ending

Where runs with the same number of instances are known, they are the answer, and the model only states its parts.
Results scatter by factors, so intervals are those of logarithms, by Student's t, with a scatter that is assumed until
runs show it. That of a whole run is how much the earlier runs would have differed in doing the same job: what slows its
start and what slows its updates need not go together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from trainjob.records.prediction import Prediction, Range

# Between two runs of one job on one machine: as if seen once, and ever less, until so many differences show it.
_ASSUMED_SCATTER = 0.15
_ENOUGH_FREEDOM = 4
# Runs in a row agree better than runs of different days.
_LEAST_SCATTER, _LEAST_SCATTER_OF_BYTES = 0.01, 0.0005
# For a number of instances that no run has had.
_SCATTER_OF_MODEL = 0.25
_SCATTER_OF_MEMORY, _SCATTER_OF_CHECKPOINT = 0.03, 0.005
_Z = 1.6449  # 95 % of a normal distribution are below
# Machines change: of each number of instances only this many of the newest runs count.
_NEWEST = 12


@dataclass(frozen=True)
class Observation:
    """The measurements of one run, in seconds."""

    id: str
    instances: int
    accumulation: int
    compute_s: float  # of one micro batch
    loader_s: float  # of one micro batch
    reduce_s: float  # of one update: all-reduce, and waiting for the slowest rank
    evaluation_s: float  # of one evaluation
    evaluations: float  # an epoch
    checkpoint_s: float  # of one checkpoint
    start_up_s: float  # of one attempt
    ending_s: float  # of one attempt
    memory_bytes: float | None = None
    checkpoint_bytes: float | None = None
    weights_bytes: float | None = None
    durable_s: float | None = None  # the longest time until a checkpoint was on disk

    def update_s(self, accumulation: int) -> float:
        """Return the seconds of one update with another number of micro batches."""
        return accumulation * (self.compute_s + self.loader_s) + self.reduce_s


def checkpoints_of(updates: int, every: int) -> int:
    """Return how many checkpoints a run writes, the last one included."""
    return 1 + (updates - 1) // every if every else 1


@dataclass(frozen=True)
class Target:
    """The job to predict."""

    instances: int
    accumulation: int
    updates: int
    updates_per_epoch: int | None
    checkpoint_every: int = 0
    cores: int | None = None  # that the instances share; None: each has its own, or a device
    time_limit_s: float | None = None
    margin_s: float = 0.0  # before the time limit, when the run is asked to stop

    def update_s(self, one: Observation) -> float:
        """Return the seconds of an update of this job, at the pace of an earlier run; the same for those below."""
        return one.update_s(self.accumulation)

    def aside_s(self, one: Observation) -> float:
        """Return the seconds of all evaluations and checkpoints."""
        epochs = max(1.0, self.updates / self.updates_per_epoch) if self.updates_per_epoch else 1.0
        written = checkpoints_of(self.updates, self.checkpoint_every)
        return max(1.0, epochs * one.evaluations) * one.evaluation_s + written * one.checkpoint_s

    def rest_s(self, one: Observation) -> float:
        """Return the seconds of everything but updates."""
        return one.start_up_s + self.aside_s(one) + one.ending_s

    def run_s(self, one: Observation) -> float:
        """Return the seconds of the whole run."""
        return self.updates * self.update_s(one) + self.rest_s(one)


@dataclass(frozen=True)
class Scaling:
    """The fitted model. `reduce_s` is for the target."""

    compute_s: float
    loader_s: float
    reduce_s: float
    latency_s: float
    bytes_per_s: float | None
    weights_bytes: float | None

    def lines(self, target: Target) -> list[str]:
        """Return the model in words."""
        lines = [
            f"compute   {_ms(self.compute_s)} a micro batch × {target.accumulation}",
            f"loader    {_ms(self.loader_s)} a micro batch × {target.accumulation}",
        ]
        if target.instances == 1:
            return [*lines, "reduce    nothing: one instance"]
        size = "gradients" if self.weights_bytes is None else f"B = {self.weights_bytes / 1e6:.3g} MB"
        rate = "" if self.bytes_per_s is None else f" + 2(N−1)/N × B at {self.bytes_per_s / 1e6:,.3g} MB/s"
        return [
            *lines,
            f"reduce    {_ms(self.reduce_s)} an update: {size}, 2(N−1) × {_ms(self.latency_s)} latency{rate}",
        ]


def predict(observations: Sequence[Observation], target: Target, basis: str) -> Prediction | None:
    """Return the prediction, `observations` being in order of time; None if they can't tell of this job.

    Runs on one instance alone don't: they have not measured the time of reducing.
    """
    same = [one for one in observations if one.instances == target.instances][-_NEWEST:]
    if not same and (not observations or (target.instances > 1 and all(one.instances == 1 for one in observations))):
        return None
    scaling = fit(observations, target)
    each = target.accumulation * (scaling.compute_s + scaling.loader_s) + scaling.reduce_s
    nearest = min((one.instances for one in observations), key=lambda one: abs(math.log(one / target.instances)))
    near = same or [one for one in observations if one.instances == nearest][-_NEWEST:]
    if same:
        each, whole = median(map(target.update_s, same)), median(map(target.run_s, same))
    else:
        whole = target.updates * each + median(map(target.rest_s, near))
    figures = (target.update_s, target.run_s)
    of_update, of_run = (_half_width(*_scatter(observations, one), len(same)) for one in figures)
    start_up, ending = median(one.start_up_s for one in near), median(one.ending_s for one in near)
    aside = median(map(target.aside_s, near))
    training = _range(target.updates * each + aside, of_update)
    besides = f"besides   start-up {start_up:.2f} s, ending {ending:.2f} s, evaluation and checkpoints {aside:.2f} s"
    return Prediction(
        instances=target.instances,
        updates=target.updates,
        update_s=_range(each, of_update),
        epoch_s=None if target.updates_per_epoch is None else _range(each * target.updates_per_epoch, of_update),
        run_s=_range(whole, of_run),
        basis=basis,
        memory_bytes=_bytes(observations, same, near, lambda one: one.memory_bytes, _SCATTER_OF_MEMORY),
        checkpoint_bytes=_bytes(observations, same, near, lambda one: one.checkpoint_bytes, _SCATTER_OF_CHECKPOINT),
        time_limit_s=target.time_limit_s,
        attempts=_attempts(target, training, start_up + ending),
        start_up_s=start_up,
        model=[*scaling.lines(target), besides if same else f"{besides}; no run has had this number of instances"],
    )


def fit(observations: Sequence[Observation], target: Target) -> Scaling:
    """Return the model fitted to the observations, by least squares over the medians of each number of instances."""
    by_number = {
        number: [one for one in observations if one.instances == number][-_NEWEST:]
        for number in sorted({one.instances for one in observations})
    }
    compute = {number: median(one.compute_s for one in runs) for number, runs in by_number.items()}
    reduce = {number: median(one.reduce_s for one in runs) for number, runs in by_number.items() if number > 1}
    sizes = [one.weights_bytes for one in observations if one.weights_bytes]
    size = median(sizes) if sizes else None
    latency, per_byte = _reduction(reduce, size)
    number = target.instances
    reduced = 0.0 if number == 1 else 2 * (number - 1) * (latency + per_byte * (size or 1.0) / number)
    return Scaling(
        compute_s=compute.get(number) or _compute(compute, number, target.cores),
        loader_s=median(one.loader_s for one in by_number.get(number, observations)),
        reduce_s=reduce.get(number, reduced),
        latency_s=latency,
        bytes_per_s=1 / per_byte if per_byte and size else None,
        weights_bytes=size,
    )


def _compute(measured: dict[int, float], number: int, cores: int | None) -> float:
    """Return the seconds of a micro batch at a number of instances that was not measured."""
    nearest = min(measured, key=lambda one: abs(math.log(one / number)))
    if cores is None:
        return measured[nearest]
    # Instances that share cores take turns if there are more instances than cores.
    return measured[nearest] * max(1.0, number / cores) / max(1.0, nearest / cores)


def _reduction(measured: dict[int, float], size: float | None) -> tuple[float, float]:
    """Return latency and seconds per byte. One number of instances can't separate them: all is transfer then."""
    size = size or 1.0
    rows = [(2 * (number - 1), 2 * (number - 1) / number * size, seconds) for number, seconds in measured.items()]
    if not rows:
        return 0.0, 0.0
    only_bytes = sum(b * s for _, b, s in rows) / sum(b * b for _, b, s in rows)
    if len(rows) == 1:
        return 0.0, only_bytes
    aa, ab, bb = (sum(a * a for a, _, _ in rows), sum(a * b for a, b, _ in rows), sum(b * b for _, b, _ in rows))
    at, bt = sum(a * s for a, _, s in rows), sum(b * s for _, b, s in rows)
    determinant = aa * bb - ab * ab
    latency, per_byte = (at * bb - bt * ab) / determinant, (aa * bt - ab * at) / determinant
    if latency < 0:
        return 0.0, only_bytes
    return (at / aa, 0.0) if per_byte < 0 else (latency, per_byte)


def _scatter(
    observations: Sequence[Observation],
    figure: Callable[[Observation], float],
    assumed: float = _ASSUMED_SCATTER,
    least: float = _LEAST_SCATTER,
) -> tuple[float, float]:
    """Return the standard deviation of logarithms about the mean of each number of instances, and its freedom."""
    squares = freedom = 0.0
    for number in {one.instances for one in observations}:
        values = [figure(one) for one in observations if one.instances == number][-_NEWEST:]
        logs = [math.log(value) for value in values if value > 0]
        if len(logs) > 1:
            middle = fmean(logs)
            squares += sum((one - middle) ** 2 for one in logs)
            freedom += len(logs) - 1
    weight = max(0.0, 1 - freedom / _ENOUGH_FREEDOM)
    squares, freedom = squares + weight * assumed**2, freedom + weight
    return max(least, math.sqrt(squares / freedom)), freedom


def _half_width(scatter: float, freedom: float, count: int) -> float:
    """Return half the 90 % interval of one further logarithm, after `count` results; 0 of them: by the model alone."""
    sigma = scatter * math.sqrt(1 + 1 / count) if count else math.hypot(scatter * math.sqrt(2), _SCATTER_OF_MODEL)
    # With the fewest degrees of freedom, the interval would be too wide to mean anything.
    return sigma * student_95(max(2.0, freedom))


def student_95(freedom: float) -> float:
    """Return the 95 % quantile of Student's t, by its expansion about the normal distribution: within 6 % from 2 on."""
    z = _Z
    return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)


def _range(middle: float, half_width: float) -> Range:
    return Range(middle, middle * math.exp(-half_width), middle * math.exp(half_width))


def _bytes(
    observations: Sequence[Observation],
    same: Sequence[Observation],
    near: Sequence[Observation],
    figure: Callable[[Observation], float | None],
    assumed: float,
) -> Range | None:
    values = [value for value in map(figure, near) if value]
    if not values:
        return None
    least = _LEAST_SCATTER_OF_BYTES if same else assumed
    scatter, freedom = _scatter(observations, lambda one: figure(one) or 0.0, assumed, least)
    return _range(median(values), _half_width(scatter, freedom, len(values)))


def _attempts(target: Target, training: Range, fixed_s: float) -> Range | None:
    if target.time_limit_s is None:
        return None
    usable = target.time_limit_s - target.margin_s - fixed_s
    if usable <= 0:
        return None
    return Range(*(float(max(1, math.ceil(one / usable))) for one in (training.median, training.low, training.high)))


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.3g} ms"
