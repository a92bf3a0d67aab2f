"""A plan as job.json and --json have it: compact, whatever the number of hosts."""

from __future__ import annotations

import dataclasses

from trainjob.cluster import hostlist
from trainjob.contract.batch import Batch
from trainjob.contract.job import BatchRecord, EffectRecord, GroupRecord, PlanRecord, TopologyRecord, WarningRecord
from trainjob.plan.values import Plan, Topology


def as_record(plan: Plan) -> PlanRecord:
    """Return the record of `plan`. Hosts are one text of ranges; what is alike is a count."""
    effect = plan.learning_rate_effect
    return PlanRecord(
        cluster=plan.cluster,
        kind=plan.kind,
        name=plan.name,
        engine=plan.engine,
        topology=_topology(plan.topology),
        batch=None if plan.batch is None else _batch(plan.batch),
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
        groups=[GroupRecord(one.name, one.hosts, one.instances_per_host) for one in topology.groups],
    )


def _batch(batch: Batch) -> BatchRecord:
    return BatchRecord(**{one.name: getattr(batch, one.name) for one in dataclasses.fields(BatchRecord)})
