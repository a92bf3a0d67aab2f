"""Cluster and job become a plan, or a refusal that names the nearest settings that can run."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

from trainjob.cluster.base import Cluster
from trainjob.cluster.job import Job
from trainjob.cluster.nodes import Capacity
from trainjob.cluster.slurm_text import compress
from trainjob.contract.batch import Batch
from trainjob.contract.roles import parse
from trainjob.contract.tasks import TaskFacts
from trainjob.planning import (
    batch,
    counts,
    engines,
    environments,
    learning,
    limits,
    node_starts,
    pack,
    pod,
    poprun,
    roles,
    rows,
    work,
)
from trainjob.planning.rules import Broken, counts_are_positive, refusal
from trainjob.records.job import Plan, Topology


class _Numbers(NamedTuple):
    topology: Topology
    engine: str
    task: TaskFacts | None  # None if the job is the user's own command, which has no batch either
    batch: Batch | None
    servers: dict[str, Topology]


def plan(cluster_name: str, cluster: Cluster, job: Job) -> Plan:
    """Return the plan of `job` on `cluster`. Raises Refusal if the job can't run there."""
    capacity, times = cluster.capacity, limits.TimeLimits.of(cluster, job)
    try:
        poprun.check_poprun(cluster, job)
        limits.check_slurm(cluster, job, times)
        counts.check_groups(capacity.groups, job)
        limits.check_interval(cluster, job)
        environments.check(cluster, job)
        numbers = _numbers(cluster, capacity, job)
        shares = pack.shares(cluster, job, numbers.topology, numbers.engine)
    except Broken as broken:
        raise refusal(broken, job, lambda changed: _numbers(cluster, capacity, changed)) from None
    count, task, of_task = numbers.topology.host_count, numbers.task, numbers.batch
    topology = dataclasses.replace(numbers.topology, hosts=compress(cluster.names_of_hosts(count)))
    servers = numbers.servers
    facts = [
        *roles.rows(job, topology, servers),
        *node_starts.facts(topology, job),
        *environments.facts(job),
        *rows.facts(topology, of_task, job.workers),
        rows.threads(
            topology,
            _cpus_of_instances(cluster, job, topology, 1 if shares is None else shares.of_node),
            {**cluster.env, **job.env},
            work.threads(job, topology.device),
        ),
        *rows.cost(
            pack.devices_held(cluster, job, topology, servers), topology.device, times, cluster.price_per_device_hour
        ),
        *limits.checkpoint_rows(cluster, job, count),
        *limits.array_rows(job),
        *pack.rows(cluster, shares),
        *limits.retry_rows(job),
        *rows.before_ranks(job),
        *counts.range_rows(job, topology, of_task),
    ]
    effect, warnings = None, list(learning.about_hosts(cluster, job, topology))
    if task is not None and of_task is not None:
        effect = learning.effect(job, task, of_task)
        facts = [*learning.facts(job, task, of_task), *facts]
        warnings += [*learning.about_batch(of_task, task), *learning.about_rate(job, task, of_task, effect)]
    return Plan(
        cluster=cluster_name,
        kind=cluster.kind,
        name=work.name(job),
        engine=numbers.engine,
        topology=topology,
        batch=of_task,
        learning_rate_effect=effect,
        facts=dict(facts),
        servers=servers,
        warnings=warnings,
    )


def _cpus_of_instances(cluster: Cluster, job: Job, topology: Topology, of_node: int) -> tuple[int, ...]:
    """Return the CPUs of an instance in each group of hosts, of which `of_node` runs share each; empty if unknown."""
    if shared := parse(job.roles).shared_gpus:  # CPUs go with the GPUs
        each = cluster.cpus_of_instances([topology.devices // topology.host_count + shared], 1)
        return tuple(cpus * topology.devices_per_instance for cpus in each)
    per_host = [group.instances_per_host for group in topology.groups] or [topology.instances_per_host]
    return cluster.cpus_of_instances([count * of_node for count in per_host], topology.devices_per_instance)


def _numbers(cluster: Cluster, capacity: Capacity, job: Job) -> _Numbers:
    """Return the numbers of the plan, after checking every rule. Raises Broken.

    A refusal calls this for each setting that it tries, so its cost must not grow with the cluster.
    """
    counts_are_positive(job)
    learning.check_base_batch(job)
    capacity = roles.beside_servers(capacity, job)
    task = work.task_facts(job)
    if capacity.ipus:
        topology = pod.count_ipus(capacity, job, work.task_stages(job, task))
    else:
        topology = counts.count_groups(capacity, job) if capacity.groups else counts.count(capacity, job)
    counts.not_too_many(topology)
    topology = node_starts.per_node(topology, job)
    engine = engines.engine(job, topology)
    if task is not None:
        learning.check_optimizer(job, task, engine)
    of_task = None if task is None else batch.batch(job, task, topology)
    counts.check_host_range(job, topology, engine, of_task)
    if of_task is not None and of_task.samples is not None:
        batch.split(topology.instances, job.workers, of_task.samples)
    return _Numbers(topology, engine, task, of_task, roles.servers(cluster, job, topology, engine))
