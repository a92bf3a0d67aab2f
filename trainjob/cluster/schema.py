"""JSON Schema of cluster files and job files, by which editors complete, explain and check."""

from __future__ import annotations

from typing import Any

from trainjob.cluster.job import Job
from trainjob.cluster.models import CLUSTER

_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def cluster_schema() -> dict[str, Any]:
    """Return the schema of a cluster file; which of the three kinds it is stands in `kind`."""
    return {"$schema": _DIALECT, "title": "trainjob cluster file", **CLUSTER.json_schema()}


def job_schema() -> dict[str, Any]:
    """Return the schema of a job file, as --job reads it."""
    return {"$schema": _DIALECT, **Job.model_json_schema(), "title": "trainjob job file"}
