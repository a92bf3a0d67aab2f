"""Measures parts of training alone: loading, all-reduce, and single updates with what makes them faster."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from trainjob.contract.errors import UserError
from trainjob.planning.rules import Refusal
from trainjob.records.measures import MEASUREMENT, PLAIN_STEP, STEP_VARIATIONS, read_measurement
from trainjob.render.request import Request
from trainjob.requests.workbench import Workbench

LOADER = ("trainjob.train.measure.job", "loader")
_COLLECTIVE = ("trainjob.train.measure.collective",)
_STEP = ("trainjob.train.measure.job", "step")
_TRAINING_RATE = ("trainjob.train.measure.job", "training-rate")
_CONTROL = next(iter(STEP_VARIATIONS))
# An interval between the k-th smallest and the k-th largest of n ratios holds their median in 95 of 100 cases or more.
_CERTAINTY = 0.95


def _measured(workbench: Workbench, request: Request, module: Sequence[str], *options: str) -> dict[str, Any]:
    """Return the result file of a run whose ranks run a measuring `module`. Raises UserError if it wrote none."""
    paths = workbench.run(dataclasses.replace(request, runtime=(*module, *options, "--")))
    figures = read_measurement(paths)
    if figures is None:
        raise UserError(f"run {paths.id} left no {MEASUREMENT}", f"see why: trainjob logs {paths.folder}")
    workbench.discard(paths)
    return figures


# -- loading -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Loading:
    """One number of instances and of workers. Rates are samples a second, summed over the instances of this host."""

    instances: int
    workers: int
    samples_per_s: float


def loading(workbench: Workbench, numbers: Sequence[int], workers: Sequence[int], *, seconds: float) -> list[Loading]:
    """Return the rates for each number of instances, each with every number of workers. Raises UserError."""
    options = ("--seconds", f"{seconds:g}", "--workers", *(str(number) for number in workers))
    found = []
    for instances in numbers:
        measured = _measured(workbench, workbench.vary(instances=instances, engine=None), LOADER, *options)
        found += [Loading(instances, row["workers"], row["samples_per_s"]) for row in measured["rows"]]
    return found


def training_rate(workbench: Workbench, *, seconds: float) -> float:
    """Return the samples a second that one instance alone trains on when they are in memory. Raises UserError."""
    planned = workbench.vary(instances=1, replicas=None, engine=None)
    return float(_measured(workbench, planned, _TRAINING_RATE, "--seconds", f"{seconds:g}")["samples_per_s"])


def loader_verdict(rows: Sequence[Loading], rate_of_instance: float) -> str:
    """Return how many instances a host's loaders can feed, and which setting to change.

    `rate_of_instance` is the samples a second that one instance's devices train on.
    """
    by_instances = {row.instances: [one for one in rows if one.instances == row.instances] for row in rows}
    for instances in sorted(by_instances):
        tried = sorted(by_instances[instances], key=lambda row: row.samples_per_s)
        slowest, fastest = tried[0], tried[-1]
        loaded, trained = fastest.samples_per_s, instances * rate_of_instance
        if loaded < trained:
            if fastest.workers != slowest.workers and loaded > 1.1 * slowest.samples_per_s:
                cure = f"--workers {fastest.workers} is the best of those tried; more hosts (--hosts) share the load"
            else:
                cure = "More workers don't help: spread the instances over more hosts (--hosts), or make samples "
                cure += "cheaper to load"
            return (
                f"loader-bound from {instances} instances per host: they can train on {trained:,.0f} samples/s, and "
                f"{loaded:,.0f} are loaded. {cure}"
            )
    return (
        f"not loader-bound up to {instances} instances per host: {loaded:,.0f} samples/s are loaded, and "
        f"they can train on {trained:,.0f}"
    )


# -- all-reduce --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Reduction:
    """One size, one way. `seconds` is the median of one all-reduce of everything."""

    way: str  # "one by one" | "flat" | "bucketed"
    bytes: int
    tensors: int
    seconds: float
    bytes_per_s: float
    bucket_mb: float | None = None  # of the way "bucketed"


def collective(
    workbench: Workbench, *, instances: int, megabytes: Sequence[float], tensors: int, buckets_mb: Sequence[float]
) -> list[Reduction]:
    """Return the reductions measured on `instances` ranks. Raises UserError when the run fails."""
    environ = {**workbench.request.job.env, "OMP_NUM_THREADS": "1"}
    sizes, buckets = ([f"{size:g}" for size in listed] for listed in (megabytes, buckets_mb))
    options = ("--tensors", str(tensors), "--megabytes", *sizes, "--bucket-mb", *buckets)
    planned = workbench.vary(instances=instances, engine=None, env=environ)
    return [Reduction(**row) for row in _measured(workbench, planned, _COLLECTIVE, *options)["rows"]]


# -- single updates ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Step:
    """One variation against the plain update. `gain` is how many times faster it is: the median over all rounds."""

    name: str
    rounds: int
    seconds: float | None = None  # of an update, the median; None if it can't be measured, and `why` says so
    plain_seconds: float | None = None
    gain: float | None = None
    gain_low: float | None = None  # the 95 % interval of the median
    gain_high: float | None = None
    is_certain: bool = False  # the gain is larger than the noise
    why: str = ""

    @property
    def verdict(self) -> str:
        """The conclusion, in words."""
        if self.gain is None:
            return f"not here: {self.why}"
        if not self.is_certain:
            return "no conclusion: noise hides the difference"
        return f"{self.gain:.2f} × as fast" if self.gain > 1 else f"slower: takes {1 / self.gain:.2f} × as long"


@dataclass(frozen=True)
class Rounds:
    """The seconds of an update, round by round, of one variation and of the plain update beside it."""

    name: str
    plain_s: Sequence[float] = ()
    varied_s: Sequence[float] = ()
    why: str = ""  # there are no figures


def steps(workbench: Workbench, only: Sequence[str] = (), *, rounds: int, round_s: float) -> list[Step]:
    """Return a row for the control and for each variation, or those named by `only`. Raises Refusal, UserError."""
    workbench.refuse_command()
    names: list[str] = []
    refused: list[Rounds] = []
    for name, changes in STEP_VARIATIONS.items():
        if only and name not in (*only, _CONTROL):
            continue
        try:
            workbench.vary(**{**PLAIN_STEP, **changes})
            names.append(name)
        except Refusal as error:
            refused.append(Rounds(name, why=error.text))
    options = ("--rounds", str(rounds), "--round-s", f"{round_s:g}", "--variations", *names)
    measured = _measured(workbench, workbench.vary(**PLAIN_STEP), _STEP, *options)
    return judged([*(Rounds(**row) for row in measured["rows"]), *refused])


def judged(measured: Sequence[Rounds]) -> list[Step]:
    """Return what can be concluded from the seconds of every round. Gains must exceed the control's, which is noise."""
    steps = [_step(rounds) for rounds in measured]
    noise = 0.0
    for row in steps:
        if row.name == _CONTROL and row.gain_low and row.gain_high:
            noise = max(abs(math.log(row.gain_low)), abs(math.log(row.gain_high)))
    found = []
    for row in steps:
        is_certain = False
        if row.name != _CONTROL and row.gain_low is not None and row.gain_high is not None:
            # The whole interval is on one side of 1, and farther from it than the control's.
            is_certain = math.log(row.gain_low) > noise or math.log(row.gain_high) < -noise
        found.append(dataclasses.replace(row, is_certain=is_certain))
    return found


def _step(rounds: Rounds) -> Step:
    if not rounds.varied_s:
        return Step(rounds.name, 0, why=rounds.why)
    ratios = sorted(before / after for before, after in zip(rounds.plain_s, rounds.varied_s, strict=True))
    rank = _rank(len(ratios))
    return Step(
        name=rounds.name,
        rounds=len(ratios),
        seconds=statistics.median(rounds.varied_s),
        plain_seconds=statistics.median(rounds.plain_s),
        gain=statistics.median(ratios),
        gain_low=ratios[rank],
        gain_high=ratios[-1 - rank],
    )


def _rank(count: int) -> int:
    """Return how many of `count` sorted values may be left out on either side of the interval of their median."""
    outside, rank = 0.0, 0
    while True:
        outside += 2 * math.comb(count, rank) / 2**count
        if outside > 1 - _CERTAINTY or rank >= count // 2:
            return max(0, rank - 1)
        rank += 1
