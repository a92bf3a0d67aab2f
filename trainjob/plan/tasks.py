"""The tasks of an array: Slurm alone has them."""

from __future__ import annotations

from collections.abc import Iterator

from trainjob.cluster import array
from trainjob.cluster.job import Job
from trainjob.cluster.models import Cluster, SlurmCluster
from trainjob.plan.rules import refuse
from trainjob.plan.words import quantity

ONLY_SLURM = "the tasks of an array are Slurm's to start"


def check(cluster: Cluster, job: Job) -> None:
    """Raise Broken where an array is asked of a cluster that Slurm does not schedule."""
    if job.array is not None and not isinstance(cluster, SlurmCluster):
        asked = f"array is {job.array}, and the cluster is of kind {cluster.kind}"
        refuse(
            ONLY_SLURM,
            asked,
            otherwise="Take --array and --sweep out and submit once a setting, or take a cluster of kind slurm.",
        )


def facts(job: Job) -> Iterator[tuple[str, str]]:
    """Yield the plan's row about the array."""
    if job.array is not None:
        asked = array.parse(job.array)
        at_once = "" if asked.at_once is None else f", {asked.at_once} at once"
        yield "array", f"{quantity(len(asked.numbers), 'task')} ({array.ranges(asked.numbers)}){at_once}"
