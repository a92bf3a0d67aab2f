"""Predictions from the runs in the index, cheap enough for every submission: they read few files, and no long ones."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Sequence

from trainjob.cluster.slurm_text import seconds
from trainjob.contract import states
from trainjob.contract.errors import Problem, UserError
from trainjob.contract.paths import RunPaths
from trainjob.observe import index
from trainjob.observe.predictions import model
from trainjob.observe.predictions.observed import Observation, observe, work
from trainjob.planning import checkpoints
from trainjob.records import job as jobs
from trainjob.records.checkpoints import is_too_late, margin_for
from trainjob.records.files import DamagedError, read_small, read_word
from trainjob.records.job import ContractError, JobRecord
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
    margin_s = checkpoints.limit_margin_s(request.cluster, request.job)
    if margin_s is None or request.plan.batch is None or request.elements:
        return
    slowest_s = max((one.durable_s or 0.0 for one in earlier(record_of(request))), default=0.0)
    if is_too_late(slowest_s, margin_s):
        yield Problem(
            "checkpoint-after-limit",
            f"a checkpoint of earlier runs of this work took up to {slowest_s:.0f} s until it was on disk, the last "
            f"one may have to wait for another, and the job is told to stop {margin_s:.0f} s before its time limit",
            f"Set time_limit_signal.margin_s in the cluster file to {margin_for(slowest_s)}, and give a "
            "--time-limit well above that",
        )


def earlier(record: JobRecord) -> Iterator[Observation]:
    """Yield what the newest complete runs of the same work show, oldest first."""
    own_work = work(record)
    if own_work is None or record.train is None:
        return
    mark = json.dumps(record.train.task, ensure_ascii=False).encode("utf-8", "replace")
    read: list[Observation] = []
    for paths in index.newest(_MOST_RUNS):
        if len(read) == _MOST_READ:
            break
        if read_word(paths.state) == states.COMPLETED and _is_short(paths):
            of_run = _record(paths, mark)
            observation = None
            if of_run is not None and work(of_run) == own_work:
                with contextlib.suppress(UserError):  # an unreadable folder is skipped
                    observation = observe(paths, of_run)
            read += [] if observation is None else [observation]
    yield from reversed(read)


def _is_short(paths: RunPaths) -> bool:
    try:
        return paths.metrics.stat().st_size <= _MOST_METRICS_BYTES
    except OSError:
        return False


def _record(paths: RunPaths, mark: bytes) -> JobRecord | None:
    """Return the run's job.json if it contains `mark`: most do not, and reading is cheaper than parsing."""
    try:
        content = read_small(paths.job)
        return jobs.parse(content.decode("utf-8", "replace")) if mark in content else None
    except (FileNotFoundError, NotADirectoryError, DamagedError, ContractError):
        return None
