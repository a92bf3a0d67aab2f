"""The cluster and the job of a run, read back from its job.json."""

from __future__ import annotations

from trainjob.cluster.base import Cluster
from trainjob.cluster.job import Job
from trainjob.cluster.validation import InvalidError
from trainjob.kinds.table import KINDS, cluster_of
from trainjob.records.job import ContractError, JobRecord


def cluster(record: JobRecord) -> Cluster:
    """Return the cluster of the run that `record` describes. Raises ContractError."""
    file = record.request.cluster.file
    if file.get("kind") not in KINDS:
        raise ContractError("job.json is damaged: asked.cluster.file: kind")
    try:
        return cluster_of(file)
    except InvalidError as refused:
        raise ContractError(f"job.json is damaged: asked.cluster.file: {refused}") from None


def job(record: JobRecord) -> Job:
    """Return the job of the run that `record` describes, as it was stated. Raises ContractError."""
    try:
        return Job.of(record.request.job)
    except InvalidError as refused:
        raise ContractError(f"job.json is damaged: asked.job: {refused}") from None
