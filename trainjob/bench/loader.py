"""Measures loading without training: its rate by workers and processes, against what the devices can take."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from trainjob.contract.errors import UserError
from trainjob.records.measures import MEASUREMENT, read_measurement
from trainjob.render.request import Request
from trainjob.requests.workbench import Workbench

MODULE = "trainjob.train.measure.loader"
APPETITE = "trainjob.train.measure.appetite"


@dataclass(frozen=True)
class Loading:
    """One number of instances and of workers. Rates are samples a second, summed over the instances of this host."""

    instances: int
    workers: int
    samples_per_s: float

    def as_json(self) -> dict[str, Any]:
        """Return the row for `--json`."""
        return asdict(self)


def loading(workbench: Workbench, numbers: Sequence[int], workers: Sequence[int], *, seconds: float) -> list[Loading]:
    """Return the rates for each number of instances, each with every number of workers. Raises UserError."""
    return [row for instances in numbers for row in _of(workbench, instances, workers, seconds)]


def _of(workbench: Workbench, instances: int, workers: Sequence[int], seconds: float) -> list[Loading]:
    planned = workbench.vary(instances=instances, engine=None)
    runtime = (MODULE, "--seconds", f"{seconds:g}", "--workers", *(str(number) for number in workers), "--")
    rows = measured(workbench, dataclasses.replace(planned, runtime=runtime))["rows"]
    return [Loading(instances, row["workers"], row["samples_per_s"]) for row in rows]


def measured_appetite(workbench: Workbench, *, seconds: float) -> float:
    """Return the samples a second that one instance alone trains on when they are in memory. Raises UserError."""
    planned = workbench.vary(instances=1, replicas=None, engine=None)
    runtime = (APPETITE, "--seconds", f"{seconds:g}", "--")
    return float(measured(workbench, dataclasses.replace(planned, runtime=runtime))["samples_per_s"])


def measured(workbench: Workbench, request: Request) -> dict[str, Any]:
    """Return the result file of a measuring run. Raises UserError if it wrote none."""
    paths = workbench.run(request)
    figures = read_measurement(paths)
    if figures is None:
        raise UserError(f"run {paths.id} left no {MEASUREMENT}", f"see why: trainjob logs {paths.folder}")
    workbench.discard(paths)
    return figures


def verdict(rows: Sequence[Loading], appetite_per_instance: float) -> str:
    """Return how many instances a host's loaders can feed, and which setting to change.

    `appetite_per_instance` is the samples a second that one instance's devices take.
    """
    best: dict[int, Loading] = {}
    for row in rows:
        if row.instances not in best or row.samples_per_s > best[row.instances].samples_per_s:
            best[row.instances] = row
    for instances in sorted(best):
        fastest = best[instances]
        taken = instances * appetite_per_instance
        if fastest.samples_per_s < taken:
            return (
                f"loader-bound from {instances} instances per host: they can train on {taken:,.0f} samples/s, and "
                f"{fastest.samples_per_s:,.0f} are loaded. {_knob(rows, instances)}"
            )
    most = max(best)
    return (
        f"not loader-bound up to {most} instances per host: {best[most].samples_per_s:,.0f} samples/s are loaded, and "
        f"they can train on {most * appetite_per_instance:,.0f}"
    )


def _knob(rows: Sequence[Loading], instances: int) -> str:
    mine = sorted((row for row in rows if row.instances == instances), key=lambda row: row.samples_per_s)
    slowest, fastest = mine[0], mine[-1]
    if fastest.workers != slowest.workers and fastest.samples_per_s > 1.1 * slowest.samples_per_s:
        return f"--workers {fastest.workers} is the best of those tried; more hosts (--hosts) share the load"
    return "More workers don't help: spread the instances over more hosts (--hosts), or make samples cheaper to load"
