"""Warnings about jobs that can run but probably not as intended. Codes are stable; texts may change."""

from __future__ import annotations

from collections.abc import Iterator

from trainjob.cluster.base import Cluster
from trainjob.cluster.job import Job
from trainjob.contract.batch import Batch
from trainjob.contract.errors import Problem, warning
from trainjob.contract.tasks import TaskFacts
from trainjob.planning.values import LearningRateEffect, Topology
from trainjob.planning.words import number, quantity

LARGE_BATCH = 10  # A global batch above a tenth of the data set leaves fewer than ten updates an epoch.
LOST_PERCENT = 5  # of the samples of an epoch


def about_hosts(cluster: Cluster, job: Job, topology: Topology) -> Iterator[Problem]:
    """Yield warnings about the instances of one host."""
    per_host = topology.instances_per_host
    if cluster.numa_nodes is not None and per_host > cluster.numa_nodes:
        yield warning(
            "more-instances-than-numa-nodes",
            f"{quantity(per_host, 'instance')} on a host of {quantity(cluster.numa_nodes, 'NUMA node')}: "
            "some instances will share a node",
            f"use at most {cluster.numa_nodes} instances per host",
        )
    # IPU replicas reduce over IPU-Links; only GPUs' and CPUs' gradients leave by the host's interface.
    if len(topology.hosts) > 1 and per_host > 1 and topology.device_word != "IPU":
        yield warning(
            "replicas-share-an-interface",
            f"the {per_host} replicas of each host reduce over its one interface",
            "set network.interface to the fastest interface, or accumulate so that they reduce less often",
        )
    processes = per_host * (1 + job.workers)
    cpus = cluster.cpus_per_host
    if cpus is not None and processes > cpus:
        yield warning(
            "more-processes-than-cpus",
            f"{per_host} instances × (1 + {job.workers} workers) = {processes} processes on {cpus} CPUs",
            "use fewer workers, or fewer instances per node",
        )


def about_batch(batch: Batch, task: TaskFacts) -> Iterator[Problem]:
    """Yield warnings about the batch, given the task and its data set."""
    if task.has_batch_norm and batch.micro_batch == 1:
        yield warning(
            "batch-norm-of-one-sample",
            "micro batch 1 with a model that has BatchNorm, which would normalise every sample by itself",
            "use --micro-batch 2 or more, with correspondingly less accumulation",
        )
    if not batch.samples:
        return
    if batch.global_batch * LARGE_BATCH > batch.samples:
        yield warning(
            "large-global-batch",
            f"a global batch of {number(batch.global_batch)} is more than a tenth of {number(batch.samples)} samples: "
            f"{quantity(batch.updates_per_epoch or 0, 'update')} per epoch",
            "expect to need more epochs, or use a smaller micro batch, less accumulation or fewer replicas",
        )
    yield from _lost(batch, batch.samples, batch.dropped or 0, "dropped-samples", "left out")
    yield from _lost(batch, batch.samples, batch.padded or 0, "padded-samples", "seen twice")


def _lost(batch: Batch, samples: int, lost: int, code: str, what: str) -> Iterator[Problem]:
    if lost * 100 > LOST_PERCENT * samples:
        yield warning(
            code,
            f"{number(lost)} of {quantity(samples, 'sample')} are {what} in every epoch",
            f"use a block of fewer than {number(batch.block)} samples, or one that divides the data set better",
        )


def about_learning_rate(job: Job, task: TaskFacts, rate: float, effect: LearningRateEffect) -> Iterator[Problem]:
    """Yield a warning if summing gradients makes SGD's steps larger."""
    if effect.factor > 1 and (job.optimizer or task.optimizer) == "sgd":
        yield warning(
            "learning-rate-factor",
            f"learning rate {rate:g} acts as {rate * effect.factor:g}: {effect.because}",
            f"use --reduction mean, or --learning-rate {(job.learning_rate or task.learning_rate) / effect.factor:g}",
        )
