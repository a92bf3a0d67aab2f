"""What one earlier run measured: seconds of each part of an update, and the bytes it needed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from trainjob.contract import states
from trainjob.contract.paths import RunPaths
from trainjob.observe.report.report import report
from trainjob.records import checkpoints
from trainjob.records.job import JobRecord


@dataclass(frozen=True)
class Observation:
    """The measurements of one run, in seconds."""

    id: str
    instances: int
    accumulation: int
    compute_s: float  # of one micro batch
    loader_s: float  # of one micro batch
    reduce_s: float  # of one update: all-reduce, and waiting for the slowest rank
    evaluation_s: float  # of one evaluation
    evaluations: float  # an epoch
    checkpoint_s: float  # of one checkpoint
    start_up_s: float  # of one attempt
    ending_s: float  # of one attempt
    memory_bytes: float | None = None
    checkpoint_bytes: float | None = None
    weights_bytes: float | None = None
    durable_s: float | None = None  # the longest time until a checkpoint was on disk

    def update_s(self, accumulation: int) -> float:
        """Return the seconds of one update with another number of micro batches."""
        return accumulation * (self.compute_s + self.loader_s) + self.reduce_s


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
        else goodput.checkpoints_s / checkpoints_of(done.updates, train.checkpoint_every),
        start_up_s=goodput.start_up_s / done.attempts,
        ending_s=goodput.ending_s / done.attempts,
        memory_bytes=done.peak_memory_bytes,
        checkpoint_bytes=done.checkpoint_bytes,
        durable_s=done.checkpoint_durable_s,
        weights_bytes=weights[checkpoints.MODEL].bytes if weights and checkpoints.MODEL in weights else None,
    )


def checkpoints_of(updates: int, every: int) -> int:
    """Return how many checkpoints a run writes, the last one included."""
    return 1 + (updates - 1) // every if every else 1
