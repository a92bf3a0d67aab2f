"""The optimizer and its learning rate: what fits together, scaling with the batch, and warnings about both.

The reference of a learning rate is the mean over all gradients, the default of PopTorch and of torch's losses.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from trainjob.cluster.base import Cluster
from trainjob.cluster.job import Job
from trainjob.contract.batch import Batch
from trainjob.contract.errors import UserError
from trainjob.contract.optimizers import SEVERAL, optimizer_options, schedule_options
from trainjob.contract.tasks import TaskFacts
from trainjob.planning.engines import ENGINES
from trainjob.planning.rules import refuse
from trainjob.planning.words import number, quantity
from trainjob.records.job import LearningRateEffect, PlanWarning, Topology

OPTIMIZER_EXISTS = "an optimizer is a built-in one or module:attribute, with options that it takes"
SCHEDULE_EXISTS = "a schedule is given only options that it takes"
IMPLEMENTED = "only torch's own optimizers have several implementations"
FUSED_STARTS = "torch's fused sgd takes parameters that all get their first gradient in one update"
FUSED = "a fused optimizer steps on whole parameters"
OPTIMIZER_FITS = "an optimizer is one that the engine supports"


def check_optimizer(job: Job, task: TaskFacts, engine: str) -> None:
    """Raise Broken if the optimizer, the schedule or an option does not exist, or the engine does not support it."""
    optimizer, schedule = job.optimizer or task.optimizer, job.schedule or task.schedule
    try:
        options = optimizer_options(optimizer, job.optimizer_options, job.momentum)
    except UserError as error:
        refuse(OPTIMIZER_EXISTS, error.text, otherwise=f"{error.cure}.")
    try:
        schedule_options(schedule, job.schedule_options, job.warmup_updates)
    except UserError as error:
        refuse(SCHEDULE_EXISTS, error.text, otherwise=f"{error.cure}.")
    implementation = job.optimizer_implementation
    if implementation != "auto" and (optimizer not in SEVERAL or engine == "ipu"):
        values = f"optimizer is {optimizer}, engine is {engine}, optimizer_implementation is {implementation}"
        refuse(IMPLEMENTED, values, otherwise=f"Leave out --optimizer-implementation, or take {' or '.join(SEVERAL)}.")
    if implementation == "fused" and optimizer == "sgd" and job.allow_unused_parameters:
        values = "allow_unused_parameters is true"
        refuse(FUSED_STARTS, values, otherwise="Take --optimizer-implementation foreach, or --optimizer adamw.")
    if implementation == "fused" and ENGINES[engine].shards:
        refuse(FUSED, f"engine is {engine}", otherwise="Take --optimizer-implementation foreach.")
    able = ENGINES[engine].optimizers
    if able and optimizer not in able:
        values = f"engine {engine} has {', '.join(able)}, and optimizer is {optimizer}"
        refuse(OPTIMIZER_FITS, values, otherwise=f"Take --optimizer {' or '.join(able)}.")
    if engine == "ipu" and options.get("nesterov"):
        values = "engine ipu has SGD without Nesterov's momentum, and nesterov is true"
        refuse(OPTIMIZER_FITS, values, otherwise="Leave out nesterov.")


_ADAPTIVE = {"adamw": "AdamW", "lamb": "LAMB", "lars": "LARS"}
BASE_IS_SCALED_FROM = "base_batch needs scale_learning_rate, which scales from it"


def rate(job: Job, task: TaskFacts, batch: Batch) -> float:
    """Return the learning rate to train with: as stated, or scaled from the base batch to the global batch."""
    unscaled = job.learning_rate if job.learning_rate is not None else task.learning_rate
    if job.scale_learning_rate is None:
        return unscaled
    quotient = batch.global_batch / (job.base_batch or batch.micro_batch)
    return unscaled * (math.sqrt(quotient) if job.scale_learning_rate == "sqrt" else quotient)


def check_base_batch(job: Job) -> None:
    """Raise Broken if the job states a base batch but does not scale the learning rate from it."""
    if job.base_batch is not None and job.scale_learning_rate is None:
        values = f"base_batch is {number(job.base_batch)} and scale_learning_rate is not given"
        cure = "Add --scale-learning-rate linear or sqrt, or leave base_batch out."
        refuse(BASE_IS_SCALED_FROM, values, otherwise=cure)


def facts(job: Job, task: TaskFacts, batch: Batch) -> Iterator[tuple[str, str]]:
    """Yield the row of the optimizer, and the one that shows how the learning rate is scaled, if it is."""
    optimizer, schedule = job.optimizer or task.optimizer, job.schedule or task.schedule
    momentum = f" with momentum {job.momentum:g}" if optimizer in ("sgd", "lars") else ""
    warmup = f" after {quantity(job.warmup_updates, 'update')} of warm-up" if job.warmup_updates else ""
    yield "optimizer", f"{optimizer}{momentum}, learning rate {rate(job, task, batch):g}, {schedule} schedule{warmup}"
    how = {"linear": "", "sqrt": "√"}.get(job.scale_learning_rate or "")
    if how is not None:
        unscaled = job.learning_rate if job.learning_rate is not None else task.learning_rate
        base = number(job.base_batch or batch.micro_batch)
        quotient = f"{how}({number(batch.global_batch)} global batch ÷ {base} base batch)"
        yield "scaled learning rate", f"{rate(job, task, batch):g} = {unscaled:g} × {quotient}"


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


# -- warnings about jobs that can run but probably not as intended ---------------------------------------------------

LARGE_BATCH = 10  # A global batch above a tenth of the data set leaves fewer than ten updates an epoch.
LOST_PERCENT = 5  # of the samples of an epoch


def about_hosts(cluster: Cluster, job: Job, topology: Topology) -> Iterator[PlanWarning]:
    """Yield warnings about the instances of one host."""
    per_host = topology.instances_per_host
    if cluster.numa_nodes is not None and per_host > cluster.numa_nodes:
        yield PlanWarning(
            "more-instances-than-numa-nodes",
            f"{quantity(per_host, 'instance')} on a host of {quantity(cluster.numa_nodes, 'NUMA node')}: "
            "some instances will share a node",
            f"use at most {cluster.numa_nodes} instances per host",
        )
    # IPU replicas reduce over IPU-Links; only GPUs' and CPUs' gradients leave by the host's interface. A command may
    # reduce nothing.
    if job.command is None and topology.host_count > 1 and per_host > 1 and topology.device != "IPU":
        yield PlanWarning(
            "replicas-share-an-interface",
            f"the {per_host} replicas of each host reduce over its one interface",
            "set network.interface to the fastest interface, or accumulate so that they reduce less often",
        )
    processes = per_host * (1 + job.workers)
    cpus = cluster.cpus_per_host
    if cpus is not None and processes > cpus:
        yield PlanWarning(
            "more-processes-than-cpus",
            f"{per_host} instances × (1 + {job.workers} workers) = {processes} processes on {cpus} CPUs",
            "use fewer workers, or fewer instances per node",
        )


def about_batch(batch: Batch, task: TaskFacts) -> Iterator[PlanWarning]:
    """Yield warnings about the batch, given the task and its data set."""
    if task.has_batch_norm and batch.micro_batch == 1:
        yield PlanWarning(
            "batch-norm-of-one-sample",
            "micro batch 1 with a model that has BatchNorm, which would normalise every sample by itself",
            "use --micro-batch 2 or more, with correspondingly less accumulation",
        )
    if not batch.samples:
        return
    if batch.global_batch * LARGE_BATCH > batch.samples:
        yield PlanWarning(
            "large-global-batch",
            f"a global batch of {number(batch.global_batch)} is more than a tenth of {number(batch.samples)} samples: "
            f"{quantity(batch.updates_per_epoch or 0, 'update')} per epoch",
            "expect to need more epochs, or use a smaller micro batch, less accumulation or fewer replicas",
        )
    for lost, code, what in (
        (batch.dropped, "dropped-samples", "left out"),
        (batch.padded, "padded-samples", "seen twice"),
    ):
        if (lost or 0) * 100 > LOST_PERCENT * batch.samples:
            yield PlanWarning(
                code,
                f"{number(lost or 0)} of {quantity(batch.samples, 'sample')} are {what} in every epoch",
                f"use a block of fewer than {number(batch.block)} samples, or one that divides the data set better",
            )


def about_rate(job: Job, task: TaskFacts, batch: Batch, effect: LearningRateEffect) -> Iterator[PlanWarning]:
    """Yield a warning if summing gradients makes SGD's steps larger."""
    if effect.factor > 1 and (job.optimizer or task.optimizer) == "sgd":
        peak = rate(job, task, batch)
        yield PlanWarning(
            "learning-rate-factor",
            f"learning rate {peak:g} acts as {peak * effect.factor:g}: {effect.because}",
            f"use --reduction mean, or --learning-rate {(job.learning_rate or task.learning_rate) / effect.factor:g}",
        )
