"""The learning rate: scaling with the batch, and the effect of the reduction on the size of a step.

The reference is the mean, the default of PopTorch and of torch's losses.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from trainjob.cluster.job import Job
from trainjob.contract.batch import Batch
from trainjob.contract.tasks import TaskFacts
from trainjob.planning.rules import refuse
from trainjob.planning.values import LearningRateEffect
from trainjob.planning.words import number

_ADAPTIVE = {"adamw": "AdamW", "lamb": "LAMB", "lars": "LARS"}
BASE_IS_SCALED_FROM = "base_batch needs scale_learning_rate, which scales from it"


def rate(job: Job, task: TaskFacts, batch: Batch) -> float:
    """Return the learning rate to train with: as stated, or scaled from the base batch to the global batch."""
    unscaled = job.learning_rate if job.learning_rate is not None else task.learning_rate
    return unscaled * _factor(job, batch)


def check(job: Job) -> None:
    """Raise Broken if the job states a base batch but does not scale the learning rate from it."""
    if job.base_batch is not None and job.scale_learning_rate is None:
        values = f"base_batch is {number(job.base_batch)} and scale_learning_rate is not given"
        cure = "Add --scale-learning-rate linear or sqrt, or leave base_batch out."
        refuse(BASE_IS_SCALED_FROM, values, otherwise=cure)


def scaling(job: Job, task: TaskFacts, batch: Batch) -> Iterator[tuple[str, str]]:
    """Yield the row that shows how the learning rate is scaled, if it is."""
    how = {"linear": "", "sqrt": "√"}.get(job.scale_learning_rate or "")
    if how is not None:
        unscaled = job.learning_rate if job.learning_rate is not None else task.learning_rate
        quotient = f"{how}({number(batch.global_batch)} global batch ÷ {number(_base(job, batch))} base batch)"
        yield "scaled learning rate", f"{rate(job, task, batch):g} = {unscaled:g} × {quotient}"


def _factor(job: Job, batch: Batch) -> float:
    if job.scale_learning_rate is None:
        return 1.0
    quotient = batch.global_batch / _base(job, batch)
    return math.sqrt(quotient) if job.scale_learning_rate == "sqrt" else quotient


def _base(job: Job, batch: Batch) -> int:
    return job.base_batch or batch.micro_batch


def effect(job: Job, task: TaskFacts, batch: Batch) -> LearningRateEffect:
    """Return the factor by which a step is larger than if all gradients were averaged, and the reasons.

    Sum adds up the gradients of all micro batches of an update over all replicas (PopTorch,
    accumulationAndReplicationReductionType). A loss that sums adds up the samples of its micro batch.
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
