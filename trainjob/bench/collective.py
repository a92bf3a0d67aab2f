"""All-reduce on this cluster's ranks: latency and bandwidth by size, tensor by tensor, flat, and in buckets."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from trainjob.contract.errors import UserError
from trainjob.records.measures import MEASUREMENT, read_measurement
from trainjob.requests.workbench import Workbench

MODULE = "trainjob.train.measure.collective"


@dataclass(frozen=True)
class Reduction:
    """One size, one way. `seconds` is the median of one all-reduce of everything."""

    way: str  # "one by one" | "flat" | "bucketed"
    bytes: int
    tensors: int
    seconds: float
    bytes_per_s: float
    bucket_mb: float | None = None  # of the way "bucketed"

    def as_json(self) -> dict[str, Any]:
        """Return the row for `--json`."""
        return asdict(self)


def collective(
    workbench: Workbench, *, instances: int, megabytes: Sequence[float], tensors: int, buckets_mb: Sequence[float]
) -> list[Reduction]:
    """Return the reductions measured on `instances` ranks. Raises UserError when the run fails."""
    sizes = [f"{size:g}" for size in megabytes]
    planned = workbench.vary(
        instances=instances, engine=None, env={**workbench.request.job.env, "OMP_NUM_THREADS": "1"}
    )
    buckets = [f"{size:g}" for size in buckets_mb]
    runtime = (MODULE, "--tensors", str(tensors), "--megabytes", *sizes, "--bucket-mb", *buckets, "--")
    paths = workbench.run(dataclasses.replace(planned, runtime=runtime))
    measured = read_measurement(paths)
    if measured is None:
        raise UserError(f"run {paths.id} left no {MEASUREMENT}", f"see why: trainjob logs {paths.folder}")
    workbench.discard(paths)
    return [Reduction(**row) for row in measured["rows"]]
