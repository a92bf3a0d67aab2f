"""N instances ≡ one: the same job trained both ways, compared update by update, or bit by bit."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from trainjob.cluster.job import Job
from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths
from trainjob.contract.settings import flag
from trainjob.records.trace import NUDGED
from trainjob.records.typed import field
from trainjob.render.request import Request
from trainjob.requests.workbench import Workbench
from trainjob.verify.tasks import traces
from trainjob.verify.tasks.diagnosis import ComparisonVerdict, DiagnosedVerdict, LikelyCause, TraceEvidence, diagnose
from trainjob.verify.tasks.traces import TOLERANCE, Difference, RunTrace, difference, differences

PRECISION = {"float64": "64.64", "float32": "32.32"}


@dataclass(frozen=True, kw_only=True)
class InstancesVerdict(DiagnosedVerdict):
    """The verdict whether N instances train as one, and the evidence. `judged` names the figures that decide."""

    instances: int
    engine: str
    dtype: str
    tolerance: float
    judged: str
    stream: bool  # the data set is iterable
    differences: Sequence[Difference] = field(key="updates")
    faster: Sequence[str] = ()  # settings of the N instances that the single one did not have

    def as_json(self) -> dict[str, Any]:
        """Return the verdict for `--json`."""
        null_because = {name: _WHY_NULL.get(name, _NAN) for one in self.differences for name in one.missing}
        updates = [one.as_json() for one in self.differences]
        return {**super().as_json(), "updates": updates, "null_because": null_because}


def verify(workbench: Workbench, *, instances: int, updates: int, dtype: str) -> InstancesVerdict:
    """Return whether `instances` instances train as one does, which makes up for them by accumulation.

    Ranks have one thread each. Raises Refusal for settings that can't be planned, UserError when a run fails.
    """
    several, one = both(workbench, instances=instances, updates=updates, dtype=dtype)
    runs = (workbench.run(several), workbench.run(one))
    traced = (traces.read(runs[0]), traces.read(runs[1]))
    found = tuple(differences(*traced))
    if not found:
        raise UserError(
            f"runs {runs[0].id} and {runs[1].id} have no update in common", f"read their logs: {runs[0].folder}"
        )
    tolerance = TOLERANCE[dtype]
    apart = [difference for difference in found if is_apart(difference, dtype)]
    controls: list[RunPaths] = []

    def control(update: int) -> Difference:
        """Return how far the last bits of the first weights alone move `update` of one instance."""
        controls.append(workbench.run(dataclasses.replace(one, job=one.job.changed(trace=NUDGED))))
        return difference(traces.read(controls[0]).update(update), traced[1].update(update))

    findings = [*_by_setting(workbench, one, traced[1], several.job, dtype)] if apart else []
    if apart and not findings:
        findings = diagnose(TraceEvidence(*traced, instances, apart, tolerance, control))
    return InstancesVerdict(
        instances=instances,
        engine=several.plan.engine,
        dtype=dtype,
        tolerance=tolerance,
        judged=JUDGED[dtype],
        stream=traced[1].stream,
        faster=tuple(faster(several.job)),
        differences=found,
        findings=findings,
        runs=(*runs, *controls),
    )


# An update without what makes it faster.
_PLAIN_STEP = {"compile": False, "memory_format": "contiguous", "optimizer_implementation": "for-loop"}
_NAN = "a run's values are not numbers"
_WHY_NULL = {
    **dict.fromkeys(
        ("gradients", "gradient_factor", "gradient_residual"), f"an IPU shows no gradients; elsewhere, {_NAN}"
    ),
    "loss": f"a run wrote no loss of this update, or {_NAN}",
}
JUDGED = {
    "float64": "gradients, parameters and loss of every update",
    "float32": "the first update's gradients alone: later the order of a float32 sum moves weights as a mistake would",
}


def both(workbench: Workbench, *, instances: int, updates: int, dtype: str) -> tuple[Request, Request]:
    """Return the two jobs: N instances with the requested accumulation, and one instance with N times that."""
    shared = {
        "precision": PRECISION[dtype],
        "updates": updates,
        "epochs": None,
        "log_every": 1,
        "checkpoint_every": 0,
        "trace": "full",
        "env": {**workbench.request.job.env, "OMP_NUM_THREADS": "1"},
    }
    workbench.refuse_command()
    several = workbench.vary(**shared, instances=instances)
    batch = several.plan.batch
    assert batch is not None  # noqa: S101 - only a command has none
    alone = {"micro_batch": batch.micro_batch, "accumulation": batch.accumulation * instances, "global_batch": None}
    whole = {"shard_group": None, "offload": False, "engine": "single"}
    plain = {name: _PLAIN_STEP[name] for name in faster(several.job)}
    return several, workbench.vary(**shared, **alone, **whole, **plain, instances=1, replicas=None)


def faster(job: Job) -> list[str]:
    """Return the names of the settings that make a job's steps faster, without those that are chosen automatically."""
    return [name for name, plain in _PLAIN_STEP.items() if getattr(job, name) not in (plain, "auto")]


def _by_setting(workbench: Workbench, alone: Request, one: RunTrace, job: Job, dtype: str) -> Iterator[LikelyCause]:
    """Yield each setting for faster steps that already changes how a single instance trains."""
    for name in faster(job):
        changed = dataclasses.replace(alone, job=alone.job.changed(**{name: getattr(job, name)}))
        run = workbench.run(changed)
        trace = traces.read(run)
        apart = [difference for difference in differences(trace, one) if is_apart(difference, dtype)]
        if apart:
            yield LikelyCause(
                "faster-steps",
                f"one instance with {flag(name)} trains otherwise than without it",
                f"update {apart[0].update}: gradients {apart[0].gradients:.1e} apart, "
                f"parameters {apart[0].parameters:.1e}",
                f"Leave out {flag(name)}, or report the difference to torch",
            )


def is_apart(difference: Difference, dtype: str, tolerance: float | None = None) -> bool:
    """Return whether an update of two runs differs by more than rounding. Missing gradients are not judged."""
    tolerance = TOLERANCE[dtype] if tolerance is None else tolerance
    if dtype == "float32":
        return difference.update == 1 and not difference.gradients <= tolerance
    gradients = 0.0 if math.isnan(difference.gradients) else difference.gradients
    figures = (gradients, difference.parameters, difference.loss)
    return not all(figure <= tolerance for figure in figures)


@dataclass(frozen=True)
class BitwiseRow:
    """One number of instances, with the digest of the weights after the last update."""

    instances: int
    accumulation: int
    weights: str
    first_apart: int | None  # the first update whose weights differ from one instance's, or between ranks


@dataclass(frozen=True, kw_only=True)
class BitwiseVerdict(ComparisonVerdict):
    """The result of --bitwise for each number of instances, one instance first."""

    precision: str
    updates: int
    trained: Sequence[BitwiseRow]

    @property
    def equal(self) -> bool:
        """Whether all ended with the same bits."""
        return all(one.first_apart is None for one in self.trained)


def verify_bitwise(workbench: Workbench, *, instances: int, updates: int) -> BitwiseVerdict:
    """Return whether --sum-order fixed keeps its promise: the same bits of the weights on any number of instances.

    Trains in the job's own precision on each number up to `instances` that divides the micro batches. Raises Refusal
    for settings that can't be planned, UserError when a run fails.
    """
    workbench.refuse_command()
    shared: dict[str, Any] = {
        "sum_order": "fixed",
        "updates": updates,
        "epochs": None,
        "checkpoint_every": 0,
        "trace": "full",
    }
    batch = workbench.vary(**shared, instances=instances).plan.batch
    assert batch is not None  # noqa: S101 - only a command has none
    micro_batches = batch.accumulation * batch.replicas
    trained: list[BitwiseRow] = []
    runs: list[RunPaths] = []
    first: RunTrace | None = None
    for number in (number for number in range(1, instances + 1) if micro_batches % number == 0):
        counts = {"instances": number, "replicas": None, "engine": "single" if number == 1 else "ddp"}
        sizes = {"micro_batch": batch.micro_batch, "accumulation": micro_batches // number, "global_batch": None}
        runs.append(workbench.run(workbench.vary(**shared, **counts, **sizes)))
        trace = traces.read(runs[-1])
        first = first or trace
        apart = (
            update
            for update in first.updates
            if len({*trace.parameter_digests(update), *first.parameter_digests(update)}) != 1
        )
        weights = trace.parameter_digests(trace.updates[-1])[0]
        trained.append(BitwiseRow(number, micro_batches // number, weights, next(apart, None)))
    return BitwiseVerdict(precision=workbench.request.job.precision, updates=updates, trained=trained, runs=runs)
