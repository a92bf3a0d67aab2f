"""What the reduction does to the learning rate: reference Mean, as PopTorch and torch's losses have it."""

from __future__ import annotations

from trainjob.cluster.job import Job
from trainjob.contract.tasks import TaskFacts
from trainjob.plan.values import Batch, LearningRateEffect


def effect(job: Job, known: TaskFacts, batch: Batch) -> LearningRateEffect:
    """Return by how much a step is larger than with means throughout, and why.

    Sum adds up the gradients of all micro batches of an update over all replicas (PopTorch,
    accumulationAndReplicationReductionType); a loss that itself sums does so over its micro batch.
    """
    factor, reasons = 1, []
    if job.reduction == "sum":
        factor *= batch.accumulation * batch.replicas
        reasons.append(f"sum over {batch.accumulation} accumulation × {batch.replicas} replicas")
    if job.loss_is_summed or known.loss_is_summed:
        factor *= batch.micro_batch
        reasons.append(f"loss summed over {batch.micro_batch} samples")
    if not reasons:
        return LearningRateEffect(1, "mean over samples, micro batches and replicas")
    if (job.optimizer or known.optimizer) == "adamw":
        reasons.append("AdamW divides by the gradient's own size, so its steps hardly change")
    return LearningRateEffect(factor, "; ".join(reasons))
