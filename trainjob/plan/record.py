"""A plan as plain values for job.json and --json: compact, whatever the number of hosts."""

from __future__ import annotations

import dataclasses
from typing import Any

from trainjob.cluster import hostlist
from trainjob.plan.values import Batch, Plan, Topology


def as_record(plan: Plan) -> dict[str, Any]:
    """Return `plan` as JSON's types. Hosts are one text of ranges; what is alike is a count."""
    effect = plan.learning_rate_effect
    return {
        "cluster": plan.cluster,
        "kind": plan.kind,
        "name": plan.name,
        "engine": plan.engine,
        "topology": _topology(plan.topology),
        "batch": None if plan.batch is None else _batch(plan.batch),
        "learning_rate_effect": None if effect is None else dataclasses.asdict(effect),
        "facts": dict(plan.facts),
        "warnings": [dataclasses.asdict(warning) for warning in plan.warnings],
    }


def _topology(topology: Topology) -> dict[str, Any]:
    names = tuple(host.name for host in topology.hosts)
    return {
        "hosts": hostlist.compress(names),
        "host_count": len(names),
        "instances": topology.instances,
        "instances_per_host": topology.instances_per_host,
        "replicas": topology.replicas,
        "replicas_per_instance": topology.replicas_per_instance,
        "devices_per_replica": topology.devices_per_replica,
        "device": topology.device_word,
        "ilds": topology.ilds,
        "partition_ipus": topology.partition_ipus,
    }


def _batch(batch: Batch) -> dict[str, Any]:
    return {
        **dataclasses.asdict(batch),
        "global_batch": batch.global_batch,
        "block": batch.block,
        "blocks_per_epoch": batch.blocks_per_epoch,
        "updates_per_epoch": batch.updates_per_epoch,
        "total_updates": batch.total_updates,
        "dropped": batch.dropped,
        "padded": batch.padded,
    }
