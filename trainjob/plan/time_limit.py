"""The time limit of a job under Slurm: within the site's, and longer than the margin in which it checkpoints."""

from __future__ import annotations

from trainjob.cluster.job import Job
from trainjob.cluster.models import Cluster, SlurmCluster
from trainjob.cluster.times import seconds, written
from trainjob.plan.rules import refuse

WITHIN_SITE = "a job's time limit stays within the site's max_time"
LONGER_THAN_MARGIN = "a job trains before it is asked to checkpoint"


def fits(cluster: Cluster, job: Job) -> None:
    """Raise Broken where the time limit is longer than the site allows, or hardly longer than the signal's margin."""
    if not isinstance(cluster, SlurmCluster):
        return
    asked = job.time_limit or cluster.time_limit
    if asked is not None:
        _within_site(asked, cluster.limits.max_time)
        _longer_than_margin(asked, cluster.time_limit_signal.margin_s)


def _within_site(asked: str, most: str | None) -> None:
    limit_s, most_s = seconds(asked), None if most is None else seconds(most)
    if most_s is not None and (limit_s is None or limit_s > most_s):
        refuse(WITHIN_SITE, f"time_limit is {asked}, max_time is {most}", otherwise=f"Take --time-limit {most}.")


def _longer_than_margin(asked: str, margin_s: int) -> None:
    limit_s = seconds(asked)
    if limit_s is not None and limit_s <= margin_s:
        refuse(
            LONGER_THAN_MARGIN,
            f"time_limit is {asked} = {limit_s} s, and time_limit_signal.margin_s is {margin_s}",
            otherwise=f"Take --time-limit {written(2 * margin_s)}, or a smaller margin_s in the cluster file.",
        )
