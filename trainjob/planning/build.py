"""Cluster and job become a plan, or a refusal that names the nearest settings that can run."""

from __future__ import annotations

from typing import NamedTuple

from trainjob.cluster.base import Cluster
from trainjob.cluster.job import Job
from trainjob.cluster.nodes import Capacity
from trainjob.contract.batch import Batch
from trainjob.contract.errors import Problem
from trainjob.contract.tasks import TaskFacts
from trainjob.planning import (
    batch,
    caution,
    checkpoints,
    engines,
    groups,
    host_range,
    learning_rate,
    node_starts,
    optimizer,
    pod,
    poprun,
    rows,
    slurm,
    work,
)
from trainjob.planning.counts import Counts, count, not_too_many, place
from trainjob.planning.rules import Broken, counts_are_positive, refusal
from trainjob.planning.values import LearningRateEffect, Plan


class _Numbers(NamedTuple):
    counts: Counts
    engine: str
    task: TaskFacts | None  # None if the job is the user's own command, which has no batch either
    batch: Batch | None


def plan(cluster_name: str, cluster: Cluster, job: Job) -> Plan:
    """Return the plan of `job` on `cluster`. Raises Refusal if the job can't run there."""
    capacity = cluster.capacity
    try:
        poprun.check(cluster, job)
        slurm.check(cluster, job)
        groups.check(capacity.groups, job)
        checkpoints.check(cluster, job)
        numbers = _numbers(capacity, job)
    except Broken as broken:
        raise refusal(broken, job, lambda changed: _numbers(capacity, changed)) from None
    topology = place(numbers.counts, cluster.names_of_hosts(numbers.counts.hosts))
    own_cpus = cluster.cpus_of_instances([part.instances_per_host for part in topology.of_each_group()])
    learning = _learning(job, numbers)
    return Plan(
        cluster=cluster_name,
        kind=cluster.kind,
        name=work.name(job),
        engine=numbers.engine,
        topology=topology,
        batch=numbers.batch,
        learning_rate=learning.rate,
        learning_rate_effect=learning.effect,
        facts=(
            *learning.scaling,
            *node_starts.facts(numbers.counts, job),
            *rows.facts(topology, numbers.batch, job.workers),
            rows.threads(topology, own_cpus, {**cluster.env, **job.env}),
            *rows.cost(topology, cluster.time_limit_of(job), cluster.price_per_device_hour),
            *checkpoints.facts(cluster, job, len(topology.hosts)),
            *slurm.facts(job),
            *host_range.facts(job, numbers.counts, numbers.batch),
        ),
        warnings=(*caution.about_hosts(cluster, job, topology), *learning.warnings),
    )


def _numbers(capacity: Capacity, job: Job) -> _Numbers:
    """Return the numbers of the plan, after checking every rule. Raises Broken.

    A refusal calls this for each setting that it tries, so its cost must not grow with the cluster.
    """
    counts_are_positive(job)
    learning_rate.check(job)
    task = work.task_facts(job)
    if capacity.ipus:
        counts = pod.count(capacity, job, work.task_stages(job, task))
    else:
        counts = groups.count(capacity, job) if capacity.groups else count(capacity, job)
    not_too_many(counts)
    counts = node_starts.per_node(counts, job)
    engine = engines.engine(job, counts)
    if task is not None:
        optimizer.check(job, task, engine)
    job_batch = None if task is None else batch.batch(job, task, counts)
    host_range.check(job, counts, engine, job_batch)
    if job_batch is not None and job_batch.samples is not None:
        batch.split(counts.instances, job.workers, job_batch.samples)
    return _Numbers(counts, engine, task, job_batch)


class _Learning(NamedTuple):
    """What the plan says about the learning rate and the batch of a task; nothing for a command."""

    rate: float | None = None
    effect: LearningRateEffect | None = None
    scaling: tuple[tuple[str, str], ...] = ()
    warnings: tuple[Problem, ...] = ()


def _learning(job: Job, numbers: _Numbers) -> _Learning:
    task, job_batch = numbers.task, numbers.batch
    if task is None or job_batch is None:
        return _Learning()
    rate = learning_rate.rate(job, task, job_batch)
    effect = learning_rate.effect(job, task, job_batch)
    warnings = (*caution.about_batch(job_batch, task), *caution.about_learning_rate(job, task, rate, effect))
    return _Learning(rate, effect, tuple(learning_rate.scaling(job, task, job_batch)), warnings)
