"""Runs of the ipu engine on the stand-ins, and the same training by one process without them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.support.ipu_instances import environment, everywhere
from tests.support.runs_at_work import log, make_run, start, tensors, train, train_here
from trainjob.contract.paths import RunPaths


def instances_environment(instances: int, replicas: int, ipus: int = 1) -> list[dict[str, int]]:
    """Return what poprun tells each instance; nothing where one process drives its replicas without poprun."""
    return [environment(index, instances, replicas, ipus) for index in range(instances)] if instances > 1 else [{}]


def run_ipus(
    folder: Path,
    instances: int = 1,
    replicas: int = 1,
    *,
    exact: bool = False,
    attempt: int = 1,
    code: int = 0,
    run: RunPaths | None = None,
    variables: Mapping[str, Any] | None = None,
    python: str | None = None,
    **job: Any,
) -> RunPaths:
    """Return the run directory of a training that every instance ended with `code`.

    `exact`: in float64 where an IPU has float32, so that the order of a sum makes no difference.
    """
    run = run or make_run(folder, instances=instances, replicas=replicas, engine="ipu", **job)
    environ = {**everywhere(), "TRAINJOB_RANK_DEVICE": "ipu", **(variables or {})}
    if exact:
        environ["TRAINJOB_STANDIN_ARITHMETIC"] = "float64"
    by_rank = instances_environment(instances, replicas, job.get("ipus_per_replica", 1))
    codes = train(run, instances, attempt, by_rank=by_rank, python=python, **environ)
    assert codes == [code] * instances, log(run)
    return run


def run_alone(folder: Path, replicas: int = 1, accumulation: int = 1, **job: Any) -> RunPaths:
    """Return the run directory of the same training by the single engine, in float64."""
    job.pop("device_iterations", None)
    run = make_run(folder, accumulation=accumulation * replicas, engine="single", **{**job, "precision": "64.64"})
    assert train_here(run) == 0
    return run


def furthest_apart(one: RunPaths, other: RunPaths) -> float:
    """Return by how much the final weights of two runs differ, relative to the largest weight."""
    mine, theirs = tensors(one), tensors(other)
    assert mine.keys() == theirs.keys()
    apart = max(float((mine[name].double() - theirs[name].double()).abs().max()) for name in theirs)
    return apart / max(float(value.abs().max()) for value in theirs.values())


__all__ = ["furthest_apart", "instances_environment", "log", "run_alone", "run_ipus", "start"]
