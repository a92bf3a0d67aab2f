"""Cluster and job become a plan, or a refusal that names the nearest settings that can run."""

from __future__ import annotations

from typing import NamedTuple

from trainjob.cluster.job import Job
from trainjob.cluster.models import Cluster
from trainjob.contract.tasks import TaskFacts
from trainjob.plan import (
    batch,
    caution,
    cures,
    engines,
    learning_rate,
    nodes,
    pod,
    poprun,
    rows,
    shards,
    tasks,
    time_limit,
    values,
    work,
)
from trainjob.plan.counts import Counts, not_too_many
from trainjob.plan.place import place
from trainjob.plan.rules import Broken, counts_are_positive
from trainjob.plan.sites import Site, host_names, site
from trainjob.plan.values import Batch, LearningRateEffect, Plan, Topology


class _Numbers(NamedTuple):
    counts: Counts
    engine: str
    known: TaskFacts | None  # None, as the batch: a command of the user's own
    batch: Batch | None


def plan(cluster_name: str, cluster: Cluster, job: Job) -> Plan:
    """Return everything worked out of `cluster` and `job`. Raises Refusal."""
    room = site(cluster)
    try:
        poprun.check(cluster, job)
        time_limit.fits(cluster, job)
        tasks.check(cluster, job)
        numbers = _work_out(room, job)
    except Broken as broken:
        raise cures.refusal(broken, job, lambda changed: _work_out(room, changed)) from None
    topology = place(numbers.counts, host_names(cluster, numbers.counts.hosts))
    effect = _effect(job, numbers)
    return Plan(
        cluster=cluster_name,
        kind=cluster.kind,
        name=work.name(job),
        engine=numbers.engine,
        topology=topology,
        batch=numbers.batch,
        learning_rate=_rate(job, numbers),
        learning_rate_effect=effect,
        facts=(*_scaling(job, numbers), *rows.facts(topology, numbers.batch, job.workers), *tasks.facts(job)),
        warnings=_warnings(cluster, job, numbers, topology, effect),
    )


def _work_out(room: Site, job: Job) -> _Numbers:
    """Return all numbers: every rule is asked here, and none of it grows with the cluster. Raises Broken."""
    counts_are_positive(job)
    learning_rate.check(job)
    known = work.task_facts(job)
    counts = pod.count(room, job, work.task_stages(job, known)) if room.ipus else nodes.count(room, job)
    not_too_many(counts)
    engine = engines.engine(job, counts)
    worked_out = None if known is None else batch.batch(job, known, counts)
    if worked_out is not None and worked_out.samples is not None:
        shards.split(counts.instances, job.workers, worked_out.samples)
    return _Numbers(counts, engine, known, worked_out)


def _rate(job: Job, numbers: _Numbers) -> float | None:
    if numbers.known is None or numbers.batch is None:
        return None
    return learning_rate.rate(job, numbers.known, numbers.batch)


def _scaling(job: Job, numbers: _Numbers) -> tuple[tuple[str, str], ...]:
    if numbers.known is None or numbers.batch is None:
        return ()
    return tuple(learning_rate.scaling(job, numbers.known, numbers.batch))


def _effect(job: Job, numbers: _Numbers) -> LearningRateEffect | None:
    if numbers.known is None or numbers.batch is None:
        return None
    return learning_rate.effect(job, numbers.known, numbers.batch)


def _warnings(
    cluster: Cluster, job: Job, numbers: _Numbers, topology: Topology, effect: LearningRateEffect | None
) -> tuple[values.Warning, ...]:
    warnings = [*caution.about_hosts(cluster, job, topology)]
    if numbers.known is not None and numbers.batch is not None and effect is not None:
        warnings += caution.about_batch(numbers.batch)
        warnings += caution.about_learning_rate(
            job, numbers.known, learning_rate.rate(job, numbers.known, numbers.batch), effect
        )
    return tuple(warnings)
