"""The record of a plan in job.json and in --json, compact for any number of hosts."""

from __future__ import annotations

import dataclasses

from trainjob.cluster import hostlist
from trainjob.planning.values import Plan, Topology
from trainjob.records.job import BatchRecord, EffectRecord, GroupRecord, PlanRecord, TopologyRecord, WarningRecord


def as_record(plan: Plan) -> PlanRecord:
    """Return the record of `plan`. Hosts are one text of ranges; equal instances and replicas are counts."""
    effect = plan.learning_rate_effect
    batch_fields = [field.name for field in dataclasses.fields(BatchRecord)]
    return PlanRecord(
        cluster=plan.cluster,
        kind=plan.kind,
        name=plan.name,
        engine=plan.engine,
        topology=_topology(plan.topology),
        batch=None if plan.batch is None else BatchRecord(**{name: getattr(plan.batch, name) for name in batch_fields}),
        learning_rate_effect=None if effect is None else EffectRecord(effect.factor, effect.because),
        facts=dict(plan.facts),
        warnings=[WarningRecord(warning.code, warning.text, warning.cure) for warning in plan.warnings],
    )


def _topology(topology: Topology) -> TopologyRecord:
    names = tuple(host.name for host in topology.hosts)
    return TopologyRecord(
        hosts=hostlist.compress(names),
        host_count=len(names),
        instances=topology.instances,
        instances_per_host=topology.instances_per_host,
        replicas=topology.replicas,
        replicas_per_instance=topology.replicas_per_instance,
        devices_per_replica=topology.devices_per_replica,
        device=topology.device_word,
        ilds=topology.ilds,
        partition_ipus=topology.partition_ipus,
        groups=[GroupRecord(group.name, group.hosts, group.instances_per_host) for group in topology.groups],
    )
