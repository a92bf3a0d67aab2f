"""Predictions from the runs in the index, cheap enough for every submission: they read few files, and no long ones."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from typing import Any

from trainjob.cluster.slurm_text import seconds
from trainjob.contract import states
from trainjob.contract.errors import Problem, UserError
from trainjob.contract.paths import RunPaths
from trainjob.observe import index
from trainjob.observe.predictions import model
from trainjob.observe.predictions.model import Observation
from trainjob.planning.limits import limit_margin_s
from trainjob.records import attempts, checkpoints
from trainjob.records import job as jobs
from trainjob.records.job import JobRecord
from trainjob.records.prediction import Prediction
from trainjob.render.record import job_record
from trainjob.render.request import Request

# How many of the newest runs are considered, and how many runs of the same work are read.
_MOST_RUNS, _MOST_READ = 300, 24
# A longer metrics.jsonl would delay a submission.
_MOST_METRICS_BYTES = 4_000_000


def predict(request: Request) -> Prediction | None:
    """Return what a job should take, from earlier runs of the same work on the same cluster; None if too few."""
    target = target_of(request)
    if target is None:
        return None
    observations = list(earlier(record_of(request)))
    return model.predict(observations, target, basis(observations))


def basis(observations: Sequence[Observation]) -> str:
    """Return in words which runs a prediction is based on."""
    count = len(observations)
    newest = ", ".join(one.id for one in observations[-3:])
    return f"{count} earlier run{'' if count == 1 else 's'}, the newest {newest}"


def record_of(request: Request) -> JobRecord:
    """Return the job.json that would be submitted, as it would be read back: some types differ."""
    return jobs.parse(job_record(request).to_json())


def target_of(request: Request) -> model.Target | None:
    """Return what the model must know about a job; None if its length or its work is unknown."""
    batch, topology = request.plan.batch, request.plan.topology
    if batch is None or batch.total_updates is None or request.elements:
        return None
    limit = request.cluster.time_limit_of(request.job)
    # Only this machine's cores are known; all instances share them.
    is_here = request.cluster.trains_here and topology.device == "CPU"
    return model.Target(
        instances=topology.instances,
        accumulation=batch.accumulation,
        updates=batch.total_updates,
        updates_per_epoch=batch.updates_per_epoch,
        # With `auto` they take next to no time.
        checkpoint_every=0 if request.job.checkpoint_every == "auto" else request.job.checkpoint_every,
        cores=len(os.sched_getaffinity(0)) if is_here and hasattr(os, "sched_getaffinity") else None,
        time_limit_s=None if limit is None else seconds(limit),
        margin_s=float(request.cluster.stop_margin_s),
    )


def too_late_for_a_checkpoint(request: Request) -> Iterator[Problem]:
    """Yield a problem if the job is told to stop too late for a checkpoint as slow as those of earlier runs."""
    margin_s = limit_margin_s(request.cluster, request.job)
    if margin_s is None or request.plan.batch is None or request.elements:
        return
    slowest_s = max((one.durable_s or 0.0 for one in earlier(record_of(request))), default=0.0)
    if checkpoints.is_too_late(slowest_s, margin_s):
        yield Problem(
            "checkpoint-after-limit",
            f"checkpoints of earlier runs took up to {slowest_s:.0f} s to reach the disk. The stop signal comes "
            f"{margin_s:.0f} s before the time limit, which leaves no time for two",
            f"Set time_limit_signal.margin_s in the cluster file to {checkpoints.margin_for(slowest_s)}, and give a "
            "--time-limit well above that",
        )


def earlier(record: JobRecord) -> Iterator[Observation]:
    """Yield what the newest complete runs of the same work show, oldest first."""
    own_work = work(record)
    if own_work is None or record.train is None:
        return
    read: list[Observation] = []
    for paths in index.newest(_MOST_RUNS):
        if len(read) == _MOST_READ:
            break
        is_complete = attempts.state(paths) == states.COMPLETED
        of_run = jobs.read_if_it_has(paths.job, record.train.task) if is_complete else None
        if of_run is None or work(of_run) != own_work:
            continue
        with contextlib.suppress(UserError, OSError):  # an unreadable folder is skipped
            is_short = paths.metrics.stat().st_size <= _MOST_METRICS_BYTES
            observation = observe(paths, of_run) if is_short else None
            read += [] if observation is None else [observation]
    yield from reversed(read)


def work(record: JobRecord) -> dict[str, Any] | None:
    """Return what runs must have in common if one is to predict another; None for the user's own command.

    The number of instances and of micro batches may differ: the model scales with them.
    """
    train = record.train
    if train is None:
        return None
    return {
        "cluster": record.plan.cluster,
        "device": record.plan.topology.device,
        # A single instance may have another engine, because it reduces nothing and computes the same.
        "engine": "ddp" if train.engine == "single" else train.engine,
        "environment": record.environment,
        **{
            name: getattr(train, name)
            for name in (
                *("task", "task_options", "entry", "data", "micro_batch", "precision", "optimizer"),
                *("device_iterations", "ipus_per_replica", "workers", "trace"),
            )
        },
    }


def observe(paths: RunPaths, record: JobRecord) -> Observation | None:
    """Return the measurements of a run; None if it is not complete, or recorded too little."""
    from trainjob.observe.report.report import report  # most plans find no run of the same work

    done = report(paths)
    goodput, train = done.goodput, record.train
    is_enough = done.state == states.COMPLETED and done.seconds and done.updates and done.attempts
    if not is_enough or goodput is None or train is None or done.seconds is None or not done.updates:
        return None
    each = 1 / (done.updates * train.accumulation)
    newest = checkpoints.newest(paths)
    weights = None if newest is None else checkpoints.files_of(newest)
    per_epoch = record.plan.batch.updates_per_epoch if record.plan.batch else None
    epochs = max(1.0, done.updates / per_epoch) if per_epoch else 1.0
    return Observation(
        id=paths.id,
        instances=done.instances,
        accumulation=train.accumulation,
        compute_s=done.seconds["compute"] * each,
        loader_s=done.seconds["data"] * each,
        reduce_s=done.seconds["communication"] / done.updates,
        evaluation_s=goodput.evaluation_s / max(1, done.evaluations),
        evaluations=done.evaluations / epochs,
        checkpoint_s=goodput.checkpoints_s / (done.checkpoints_written or 1)
        if train.checkpoint_every == "auto"
        else goodput.checkpoints_s / model.checkpoints_of(done.updates, train.checkpoint_every),
        start_up_s=goodput.start_up_s / done.attempts,
        ending_s=goodput.ending_s / done.attempts,
        memory_bytes=done.peak_memory_bytes,
        checkpoint_bytes=done.checkpoint_bytes,
        durable_s=done.checkpoint_durable_s,
        weights_bytes=weights[checkpoints.MODEL].bytes if weights and checkpoints.MODEL in weights else None,
    )
