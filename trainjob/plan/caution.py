"""Warnings: what runs and is likely not meant. Codes are stable; texts may change."""

from __future__ import annotations

from collections.abc import Iterator

from trainjob.cluster.job import Job
from trainjob.cluster.models import Cluster, SlurmCluster
from trainjob.contract.tasks import TaskFacts
from trainjob.plan import values
from trainjob.plan.values import Batch, LearningRateEffect, Topology
from trainjob.plan.words import number, quantity

LARGE_BATCH = 10  # A global batch above a tenth of the data set leaves fewer than ten updates an epoch.
LOST_PERCENT = 5  # of the samples of an epoch


def about_hosts(cluster: Cluster, job: Job, topology: Topology) -> Iterator[values.Warning]:
    """Yield what is to be said of the instances of one host."""
    here = topology.instances_per_host
    if cluster.numa_nodes is not None and here > cluster.numa_nodes:
        yield values.Warning(
            "more-instances-than-numa-nodes",
            f"{quantity(here, 'instance')} on a host of {quantity(cluster.numa_nodes, 'NUMA node')}: some share one",
            f"at most {cluster.numa_nodes} instances a host",
        )
    # IPU replicas reduce over IPU-Links; only GPUs' and CPUs' gradients leave by the host's interface.
    if len(topology.hosts) > 1 and here > 1 and topology.device_word != "IPU":
        yield values.Warning(
            "replicas-share-an-interface",
            f"{here} replicas of a host reduce over its one interface",
            "give network.interface the fastest there is, or use accumulation so that they reduce less often",
        )
    processes = here * (1 + job.workers)
    if isinstance(cluster, SlurmCluster) and processes > cluster.nodes.cpus:
        yield values.Warning(
            "more-processes-than-cpus",
            f"{here} instances × (1 + {job.workers} workers) = {processes} processes on {cluster.nodes.cpus} CPUs",
            "fewer workers, or fewer instances a node",
        )


def about_batch(batch: Batch) -> Iterator[values.Warning]:
    """Yield what is to be said of the batch against the data set."""
    if not batch.samples:
        return
    if batch.global_batch * LARGE_BATCH > batch.samples:
        yield values.Warning(
            "large-global-batch",
            f"a global batch of {number(batch.global_batch)} is more than a tenth of {number(batch.samples)} samples: "
            f"{quantity(batch.updates_per_epoch or 0, 'update')} an epoch",
            "expect to need more epochs, or take a smaller micro batch, less accumulation or fewer replicas",
        )
    yield from _lost(batch, batch.samples, batch.dropped or 0, "dropped-samples", "left out")
    yield from _lost(batch, batch.samples, batch.padded or 0, "padded-samples", "seen twice")


def _lost(batch: Batch, samples: int, lost: int, code: str, what: str) -> Iterator[values.Warning]:
    if lost * 100 > LOST_PERCENT * samples:
        yield values.Warning(
            code,
            f"{number(lost)} of {quantity(samples, 'sample')} are {what} in every epoch",
            f"take a block smaller than {number(batch.block)} samples, or one that divides the data set better",
        )


def about_learning_rate(
    job: Job, known: TaskFacts, rate: float, effect: LearningRateEffect
) -> Iterator[values.Warning]:
    """Yield what is to be said of a step that sums make larger."""
    if effect.factor > 1 and (job.optimizer or known.optimizer) == "sgd":
        yield values.Warning(
            "learning-rate-factor",
            f"learning rate {rate:g} acts as {rate * effect.factor:g}: {effect.because}",
            f"--reduction mean, or --learning-rate {(job.learning_rate or known.learning_rate) / effect.factor:g}",
        )
