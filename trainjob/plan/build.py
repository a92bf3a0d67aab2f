"""Cluster and job become a plan, or a refusal that names the nearest settings that can run."""

from __future__ import annotations

from typing import NamedTuple

from trainjob.cluster.job import Job
from trainjob.cluster.models import Cluster, SlurmCluster
from trainjob.contract.batch import Batch
from trainjob.contract.errors import Problem
from trainjob.contract.tasks import TaskFacts
from trainjob.plan import (
    batch,
    caution,
    checkpoints,
    engines,
    groups,
    host_range,
    learning_rate,
    optimizer,
    pod,
    poprun,
    rows,
    slurm,
    work,
)
from trainjob.plan.counts import Counts, count, not_too_many, place
from trainjob.plan.rules import Broken, counts_are_positive, refusal
from trainjob.plan.sites import Site, host_names, site
from trainjob.plan.values import LearningRateEffect, Plan, Topology


class _Numbers(NamedTuple):
    counts: Counts
    engine: str
    task: TaskFacts | None  # None, as the batch: a command of the user's own
    batch: Batch | None


def plan(cluster_name: str, cluster: Cluster, job: Job) -> Plan:
    """Return everything worked out of `cluster` and `job`. Raises Refusal."""
    capacity = site(cluster)
    try:
        poprun.check(cluster, job)
        slurm.check(cluster, job)
        groups.check(cluster, job)
        checkpoints.check(cluster, job)
        numbers = _work_out(capacity, job)
    except Broken as broken:
        raise refusal(broken, job, lambda changed: _work_out(capacity, changed)) from None
    topology = place(numbers.counts, host_names(cluster, numbers.counts.hosts))
    effect = _effect(job, numbers)
    time_limit = job.time_limit or cluster.time_limit if isinstance(cluster, SlurmCluster) else None
    return Plan(
        cluster=cluster_name,
        kind=cluster.kind,
        name=work.name(job),
        engine=numbers.engine,
        topology=topology,
        batch=numbers.batch,
        learning_rate=_rate(job, numbers),
        learning_rate_effect=effect,
        facts=(
            *_scaling(job, numbers),
            *rows.facts(topology, numbers.batch, job.workers),
            rows.threads(topology, slurm.own_cpus(cluster, topology), {**cluster.env, **job.env}),
            *rows.cost(topology, time_limit, cluster.price_per_device_hour),
            *checkpoints.facts(cluster, job, len(topology.hosts)),
            *slurm.facts(job),
            *host_range.facts(job, numbers.counts, numbers.batch),
        ),
        warnings=_warnings(cluster, job, numbers, topology, effect),
    )


def _work_out(where: Site, job: Job) -> _Numbers:
    """Return all numbers: every rule is asked here, and none of it grows with the cluster. Raises Broken."""
    counts_are_positive(job)
    learning_rate.check(job)
    task = work.task_facts(job)
    if where.ipus:
        counts = pod.count(where, job, work.task_stages(job, task))
    else:
        counts = groups.count(where, job) if where.groups else count(where, job)
    not_too_many(counts)
    engine = engines.engine(job, counts)
    if task is not None:
        optimizer.check(job, task, engine)
    worked_out = None if task is None else batch.batch(job, task, counts)
    host_range.check(job, counts, engine, worked_out)
    if worked_out is not None and worked_out.samples is not None:
        batch.split(counts.instances, job.workers, worked_out.samples)
    return _Numbers(counts, engine, task, worked_out)


def _rate(job: Job, numbers: _Numbers) -> float | None:
    if numbers.task is None or numbers.batch is None:
        return None
    return learning_rate.rate(job, numbers.task, numbers.batch)


def _scaling(job: Job, numbers: _Numbers) -> tuple[tuple[str, str], ...]:
    if numbers.task is None or numbers.batch is None:
        return ()
    return tuple(learning_rate.scaling(job, numbers.task, numbers.batch))


def _effect(job: Job, numbers: _Numbers) -> LearningRateEffect | None:
    if numbers.task is None or numbers.batch is None:
        return None
    return learning_rate.effect(job, numbers.task, numbers.batch)


def _warnings(
    cluster: Cluster, job: Job, numbers: _Numbers, topology: Topology, effect: LearningRateEffect | None
) -> tuple[Problem, ...]:
    warnings = [*caution.about_hosts(cluster, job, topology)]
    if numbers.task is not None and numbers.batch is not None and effect is not None:
        warnings += caution.about_batch(numbers.batch, numbers.task)
        warnings += caution.about_learning_rate(
            job, numbers.task, learning_rate.rate(job, numbers.task, numbers.batch), effect
        )
    return tuple(warnings)
