"""Whether --sum-order fixed keeps its promise: the same weights to the last bit on any number of instances."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from trainjob.contract.paths import RunPaths
from trainjob.requests.workbench import Workbench
from trainjob.verify import traces
from trainjob.verify.traces import Trace


@dataclass(frozen=True)
class Trained:
    """One number of instances, with the digest of the weights after the last update."""

    instances: int
    accumulation: int
    weights: str
    first_apart: int | None  # the first update whose weights differ from one instance's, or between ranks


@dataclass(frozen=True)
class BitwiseVerdict:
    """The result of each number of instances, one instance first."""

    precision: str
    updates: int
    trained: Sequence[Trained]
    runs: Sequence[RunPaths]

    @property
    def equal(self) -> bool:
        """Whether all ended with the same bits."""
        return all(one.first_apart is None for one in self.trained)

    def as_json(self) -> dict[str, Any]:
        """Return the verdict for `--json`."""
        return {
            "equal": self.equal,
            "precision": self.precision,
            "updates": self.updates,
            "trained": [asdict(one) for one in self.trained],
            "runs": [str(paths.folder) for paths in self.runs],
        }


def verify(workbench: Workbench, *, instances: int, updates: int) -> BitwiseVerdict:
    """Train on each number of instances up to `instances` that divides the micro batches, and compare the weights.

    In the job's own precision. Raises Refusal for settings that can't be planned, UserError when a run fails.
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
    trained: list[Trained] = []
    runs: list[RunPaths] = []
    first: Trace | None = None
    for number in (number for number in range(1, instances + 1) if micro_batches % number == 0):
        counts = {"instances": number, "replicas": None, "engine": "single" if number == 1 else "ddp"}
        sizes = {"micro_batch": batch.micro_batch, "accumulation": micro_batches // number, "global_batch": None}
        runs.append(workbench.run(workbench.vary(**shared, **counts, **sizes)))
        trace = traces.read(runs[-1])
        first = first or trace
        weights = trace.parameter_digests(trace.updates[-1])[0]
        trained.append(Trained(number, micro_batches // number, weights, _first_apart(trace, first)))
    return BitwiseVerdict(workbench.request.job.precision, updates, trained, runs)


def _first_apart(trace: Trace, other: Trace) -> int | None:
    pairs = ((number, {*trace.parameter_digests(number), *other.parameter_digests(number)}) for number in other.updates)
    return next((number for number, digests in pairs if len(digests) != 1), None)
