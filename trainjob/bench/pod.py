"""A pod's data without training, rehearsed: what its instances load."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from trainjob.bench.loader import MEASUREMENT, MODULE
from trainjob.contract import states
from trainjob.contract.errors import UserError
from trainjob.contract.files import read_json
from trainjob.contract.paths import RunPaths
from trainjob.rehearse import kinds
from trainjob.rehearse.base import Rehearsal

# The job with some settings changed, as a rehearsal: it trains, or its ranks run a module of ours with arguments.
Rehearsing = Callable[[dict[str, Any], tuple[str, ...] | None], Rehearsal]


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


def loading(rehearsing: Rehearsing, workers: Sequence[int], *, seconds: float) -> Iterator[PodLoading]:
    """Yield the rate of the job with each number of workers. Raises UserError."""
    for number in workers:
        yield _row(rehearsing, number, seconds)


def _row(rehearsing: Rehearsing, workers: int, seconds: float) -> PodLoading:
    asked = rehearsing({"workers": workers}, (MODULE, "--seconds", f"{seconds:g}", "--workers", str(workers), "--"))
    verdict = kinds.rehearse(asked)
    measured = read_json(RunPaths(verdict.folder).folder / MEASUREMENT)
    if verdict.state != states.COMPLETED or not isinstance(measured, dict):
        raise UserError(f"the rehearsal in {verdict.folder} left no measurement: {verdict.outcome}")
    shutil.rmtree(verdict.folder, ignore_errors=True)
    topology, batch = asked.request.plan.topology, asked.request.plan.batch
    rate = measured["rows"][0]["samples_per_s"]
    steps = batch.blocks_per_epoch if batch else None
    samples = steps * batch.block if batch and steps else None
    return PodLoading(topology.instances, topology.replicas, workers, steps, rate, samples / rate if samples else None)
