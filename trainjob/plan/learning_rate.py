"""The learning rate: scaled where that is asked for, and what the reduction does to it.

The reference is Mean, as PopTorch and torch's losses have it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from trainjob.cluster.job import Job
from trainjob.contract.batch import Batch
from trainjob.contract.tasks import TaskFacts
from trainjob.plan.rules import refuse
from trainjob.plan.values import LearningRateEffect
from trainjob.plan.words import number

_ADAPTIVE = {"adamw": "AdamW", "lamb": "LAMB", "lars": "LARS"}
BASE_IS_SCALED_FROM = "base_batch is what scale_learning_rate scales from"


def rate(job: Job, task: TaskFacts, batch: Batch) -> float:
    """Return the learning rate to train with: as given, or scaled from the base batch to the global batch."""
    given = job.learning_rate if job.learning_rate is not None else task.learning_rate
    return given * _factor(job, batch)


def check(job: Job) -> None:
    """Raise Broken where a base is given and nothing is scaled from it."""
    if job.base_batch is not None and job.scale_learning_rate is None:
        found = f"base_batch is {number(job.base_batch)} and scale_learning_rate is not given"
        refuse(BASE_IS_SCALED_FROM, found, otherwise="Add --scale-learning-rate linear or sqrt, or take it out.")


def scaling(job: Job, task: TaskFacts, batch: Batch) -> Iterator[tuple[str, str]]:
    """Yield the row that shows how the learning rate is scaled, where it is."""
    how = {"linear": "", "sqrt": "√"}.get(job.scale_learning_rate or "")
    if how is not None:
        given = job.learning_rate if job.learning_rate is not None else task.learning_rate
        quotient = f"{how}({number(batch.global_batch)} global batch ÷ {number(_base(job, batch))} base batch)"
        yield "scaled learning rate", f"{rate(job, task, batch):g} = {given:g} × {quotient}"


def _factor(job: Job, batch: Batch) -> float:
    if job.scale_learning_rate is None:
        return 1.0
    quotient = batch.global_batch / _base(job, batch)
    return math.sqrt(quotient) if job.scale_learning_rate == "sqrt" else quotient


def _base(job: Job, batch: Batch) -> int:
    return job.base_batch or batch.micro_batch


def effect(job: Job, task: TaskFacts, batch: Batch) -> LearningRateEffect:
    """Return by how much a step is larger than with means throughout, and why.

    Sum adds up the gradients of all micro batches of an update over all replicas (PopTorch,
    accumulationAndReplicationReductionType); a loss that itself sums does so over its micro batch.
    """
    factor, reasons = 1, []
    if job.reduction == "sum":
        factor *= batch.accumulation * batch.replicas
        reasons.append(f"sum over {batch.accumulation} accumulation × {batch.replicas} replicas")
    if job.loss_is_summed or task.loss_is_summed:
        factor *= batch.micro_batch
        reasons.append(f"loss summed over {batch.micro_batch} samples")
    if not reasons:
        return LearningRateEffect(1, "mean over samples, micro batches and replicas")
    adaptive = _ADAPTIVE.get(job.optimizer or task.optimizer)
    if adaptive is not None:
        reasons.append(f"{adaptive} divides by the gradient's own size, so its steps hardly change")
    return LearningRateEffect(factor, "; ".join(reasons))
