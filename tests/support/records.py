"""A job.json for tests that only need it to be there."""

from __future__ import annotations

from typing import Any

from trainjob.records.job import ClusterRecord, JobRecord, Plan, RequestRecord, Topology


def record(instances: int = 1, train: Any = None, **changes: Any) -> JobRecord:
    """Return the record of a job with so many instances on this machine."""
    topology = Topology("localhost", 1, instances, instances, instances, 1, 0, "CPU")
    plan = Plan("local", "local", "test", "single", topology)
    request = RequestRecord(ClusterRecord("local", {"kind": "local"}, "catalog local"), {})
    values: dict[str, Any] = {"name": "test", "plan": plan, "train": train, "command": None, "request": request}
    return JobRecord(**{**values, **changes})
