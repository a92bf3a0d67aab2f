"""Checks that the job fits its devices' memory, measured with this Python's torch in a separate process."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

from trainjob.check.context import Context
from trainjob.contract.errors import Problem, UserError
from trainjob.machines import process
from trainjob.planning.memory import GB, Layout, memory, what_fits
from trainjob.planning.words import size
from trainjob.records import typed
from trainjob.records.measures import MemoryFigures
from trainjob.render.record import job_record
from trainjob.render.request import Request

_MOST_S = 300.0


def layout(request: Request) -> Layout:
    """Return the job's use of its devices, as far as memory depends on it."""
    job, plan = request.job, request.plan
    assert plan.batch is not None  # noqa: S101 - a task has one
    return Layout(
        plan.engine,
        plan.topology.instances,
        plan.batch.micro_batch,
        shard_group=job.shard_group,
        recompute=job.recompute,
        offload=job.offload,
    )


def measured(request: Request, project: Path) -> MemoryFigures:
    """Return the memory that training the job's task takes. Raises UserError without torch, or if the task fails."""
    if request.job.command or request.plan.engine == "ipu":
        work = "a command of your own" if request.job.command else "engine ipu"
        raise UserError(f"memory is planned for tasks on CPUs and GPUs, and this job runs {work}", "Leave --memory out")
    settings = json.dumps(typed.to_json(job_record(request).train)).encode()
    words = [sys.executable, "-m", "trainjob.train.measure.memory", str(project)]
    ended = process.run(words, timeout_s=_MOST_S, stdin=settings, check=False)
    if ended.code != 0:
        last = (ended.stderr.strip().splitlines() or ["it gave no reason"])[-1]
        raise UserError(
            f"the memory of this task can't be measured here: {last}",
            "One update shows the whole error: trainjob submit --cluster local --updates 1 --follow",
        )
    return typed.from_json(MemoryFigures, json.loads(ended.stdout))


def checkpoint_mb(context: Context) -> float | None:
    """Return the size of one checkpoint in MB: weights, optimizer state and averaged weights; None if it is unknown."""
    request = context.request
    try:
        figures = measured(request, context.project.top)
    except UserError:
        return None
    averaged = figures.weights if request.job.average_decay else 0
    return (figures.weights + figures.optimizer + averaged) / 1024**2


def too_little(context: Context) -> Iterator[Problem]:
    """Yield a problem if an instance needs more memory than a device has, with the settings that would fit."""
    request, limit_gb = context.request, context.request.cluster.device_memory_gb
    if limit_gb is None:
        return
    try:
        figures = measured(request, context.project.top)
    except UserError:  # `plan --memory` shows the error; a machine without torch may still submit, and so a command
        return
    how = layout(request)
    held = memory(figures, how.micro_batch, how)
    if held.total > limit_gb * GB:
        capacity = request.cluster.capacity
        most = (capacity.slots or how.instances) * capacity.most_hosts
        offers = what_fits(figures, how, most, limit_gb)
        yield Problem(
            "too-little-memory",
            f"an instance holds at least {size(held.total)} of weights, gradients, optimizer state and activations, "
            f"and a device has {limit_gb:g} GB",
            f"What fits: {', or '.join(offers)}" if offers else "No setting makes it fit: use devices with more memory",
        )
