"""N instances ≡ one: the same job trained both ways, compared update by update."""

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
from trainjob.records.measures import PLAIN_STEP
from trainjob.records.trace import NUDGED
from trainjob.render.request import Request
from trainjob.requests.workbench import Workbench
from trainjob.verify import traces
from trainjob.verify.compare import TOLERANCE, Difference, difference, differences
from trainjob.verify.diagnosis import AMPLIFIED, Evidence, Finding, diagnose
from trainjob.verify.traces import Trace

PRECISION = {"float64": "64.64", "float32": "32.32"}


@dataclass(frozen=True)
class Verdict:
    """Whether N instances train as one, and the evidence. `judged` names the figures that decide."""

    instances: int
    engine: str
    dtype: str
    tolerance: float
    judged: str
    stream: bool  # the data set is iterable
    differences: Sequence[Difference]
    findings: Sequence[Finding]
    runs: Sequence[RunPaths]
    faster: Sequence[str] = ()  # settings of the N instances that the single one did not have

    @property
    def equal(self) -> bool:
        """Whether the runs are equal within the tolerance."""
        return not self.findings

    @property
    def inconclusive(self) -> bool:
        """Whether the runs differ by no more than rounding makes of this task."""
        return any(finding.code == AMPLIFIED for finding in self.findings)

    def as_json(self) -> dict[str, Any]:
        """Return the verdict for `--json`."""
        return {
            "equal": self.equal,
            "inconclusive": self.inconclusive,
            "instances": self.instances,
            "engine": self.engine,
            "dtype": self.dtype,
            "tolerance": self.tolerance,
            "judged": self.judged,
            "stream": self.stream,
            "faster": list(self.faster),
            "updates": [one.as_json() for one in self.differences],
            "null_because": {name: _WHY_NULL.get(name, _NAN) for one in self.differences for name in one.missing},
            "findings": [one.as_json() for one in self.findings],
            "runs": [str(paths.folder) for paths in self.runs],
        }


def verify(workbench: Workbench, *, instances: int, updates: int, dtype: str) -> Verdict:
    """Return whether `instances` instances train as one does (design: N with accumulation A, one with N·A).

    float64, one thread a rank. Raises Refusal for settings that can't be planned, UserError when a run fails.
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
    control = Control(workbench, one, traced[1])
    evidence = Evidence(*traced, instances, apart, tolerance, control.difference)
    findings = [*_by_setting(workbench, one, traced[1], several.job, dtype)] if apart else []
    if apart and not findings:
        findings = diagnose(evidence)
    return Verdict(
        instances=instances,
        engine=several.plan.engine,
        dtype=dtype,
        tolerance=tolerance,
        judged=JUDGED[dtype],
        stream=traced[1].stream,
        faster=tuple(faster(several.job)),
        differences=found,
        findings=findings,
        runs=(*runs, *control.runs),
    )


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
    plain = {name: PLAIN_STEP[name] for name in faster(several.job)}
    return several, workbench.vary(**shared, **alone, **whole, **plain, instances=1, replicas=None)


def faster(job: Job) -> list[str]:
    """Return the names of the settings that make a job's steps faster, without those that are chosen automatically."""
    return [name for name, plain in PLAIN_STEP.items() if getattr(job, name) not in (plain, "auto")]


def _by_setting(workbench: Workbench, alone: Request, one: Trace, job: Job, dtype: str) -> Iterator[Finding]:
    """Yield each setting for faster steps that already changes how a single instance trains."""
    for name in faster(job):
        changed = dataclasses.replace(alone, job=alone.job.changed(**{name: getattr(job, name)}))
        run = workbench.run(changed)
        trace = traces.read(run)
        apart = [difference for difference in differences(trace, one) if is_apart(difference, dtype)]
        if apart:
            yield Finding(
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


class Control:
    """A control: one instance, its first weights changed in their last bit. It shows the effect of rounding alone.

    If N instances differ from one by no more than that, the difference proves nothing. The control trains when
    it is first needed; `runs` is empty until then.
    """

    def __init__(self, workbench: Workbench, alone: Request, one: Trace) -> None:
        self._workbench = workbench
        self._request = dataclasses.replace(alone, job=alone.job.changed(trace=NUDGED))
        self._one = one
        self._trace: Trace | None = None
        self.runs: list[RunPaths] = []

    def difference(self, update: int) -> Difference:
        """Return how far a change of the last bits moves `update` of one instance. Raises UserError."""
        if self._trace is None:
            self.runs.append(self._workbench.run(self._request))
            self._trace = traces.read(self.runs[0])
        return difference(self._trace.update(update), self._one.update(update))
