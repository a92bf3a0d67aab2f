"""Measures parts of training alone: loading and all-reduce."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from trainjob.contract.errors import UserError
from trainjob.records.measures import MEASUREMENT, read_measurement
from trainjob.render.request import Request
from trainjob.requests.workbench import Workbench

LOADER = ("trainjob.train.measure.loader",)
_COLLECTIVE = ("trainjob.train.measure.collective",)


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
