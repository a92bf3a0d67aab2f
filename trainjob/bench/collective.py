"""All-reduce on this cluster's ranks: latency and bandwidth by size, tensor by tensor, flat, and in buckets."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from trainjob.contract.errors import UserError
from trainjob.contract.files import read_json
from trainjob.runs.experiment import Workbench
from trainjob.runs.prune import remove_run

MODULE = "trainjob.train.measure.collective"
MEASUREMENT = "measurement.json"


@dataclass(frozen=True)
class Reduction:
    """One size, one way. `seconds` is the median of one all-reduce of everything."""

    way: str  # "one by one" | "flat" | "bucketed"
    bytes: int
    tensors: int
    seconds: float
    bytes_per_s: float

    def as_json(self) -> dict[str, Any]:
        """Return the row for `--json`."""
        return asdict(self)


def collective(workbench: Workbench, *, instances: int, megabytes: Sequence[float], tensors: int) -> list[Reduction]:
    """Return the reductions measured on `instances` ranks. Raises UserError when the run fails."""
    sizes = [f"{size:g}" for size in megabytes]
    planned = workbench.vary(
        instances=instances, engine=None, env={**workbench.request.job.env, "OMP_NUM_THREADS": "1"}
    )
    runtime = (MODULE, "--tensors", str(tensors), "--megabytes", *sizes, "--")
    paths = workbench.run(dataclasses.replace(planned, runtime=runtime))
    measured = read_json(paths.folder / MEASUREMENT)
    if not isinstance(measured, dict):
        raise UserError(f"run {paths.id} left no {MEASUREMENT}: look at `trainjob logs {paths.id}`")
    remove_run(paths)
    return [Reduction(**row) for row in measured["rows"]]
