"""Rules and rows that only Slurm jobs have: arrays, ranges of hosts, CPUs of a rank, and the time limit."""

from __future__ import annotations

from collections.abc import Iterator

from trainjob.cluster import array
from trainjob.cluster.base import Cluster
from trainjob.cluster.job import Job
from trainjob.cluster.times import seconds, written
from trainjob.planning.rules import refuse
from trainjob.planning.words import quantity

ONLY_SLURM = "only Slurm starts the elements of an array"
SLURM_CHOOSES = "only Slurm chooses how many hosts a job gets, and poprun needs a fixed number"
WITHIN_SITE = "a job's time limit stays within the site's max_time"
LONGER_THAN_MARGIN = "a job trains before it is asked to checkpoint"
BELOW_LIMIT = "the shortest time limit is below the time limit and above the margin of its signal"


def check(cluster: Cluster, job: Job) -> None:
    """Raise Broken if the job needs Slurm, or its time limit exceeds the site's or is within the signal's margin."""
    if job.least_hosts is not None and cluster.ranks_by != "srun":
        kind = f"kind {cluster.kind}" if cluster.ipu_keys is None else "IPUs"
        refuse(
            SLURM_CHOOSES,
            f"a range of hosts on a cluster of {kind}",
            otherwise="Give one number of hosts, or leave --hosts out.",
        )
    if job.array is not None and not cluster.has_scheduler:
        refuse(
            ONLY_SLURM,
            f"array is {job.array}, and the cluster is of kind {cluster.kind}",
            otherwise="Leave --array and --sweep out and submit each setting by itself, "
            "or choose a cluster of kind slurm.",
        )
    limit = cluster.time_limit_of(job)
    if limit is not None:
        _check_limit(limit, cluster.longest_time, cluster.stop_margin_s)
    if job.time_min is not None and cluster.has_scheduler:
        _below_limit(job.time_min, limit, cluster.stop_margin_s)


def facts(job: Job) -> Iterator[tuple[str, str]]:
    """Yield the plan's row about the array."""
    if job.array is not None:
        elements = array.parse(job.array)
        at_once = "" if elements.at_once is None else f", {elements.at_once} at once"
        yield "array", f"{quantity(len(elements.numbers), 'element')} ({array.ranges(elements.numbers)}){at_once}"


def _check_limit(limit: str, most: str | None, margin_s: int) -> None:
    limit_s, most_s = seconds(limit), None if most is None else seconds(most)
    if most_s is not None and (limit_s is None or limit_s > most_s):
        refuse(WITHIN_SITE, f"time_limit is {limit}, max_time is {most}", otherwise=f"Take --time-limit {most}.")
    if limit_s is not None and limit_s <= margin_s:
        refuse(
            LONGER_THAN_MARGIN,
            f"time_limit is {limit} = {limit_s} s, and time_limit_signal.margin_s is {margin_s}",
            otherwise=f"Take --time-limit {written(2 * margin_s)}, or a smaller margin_s in the cluster file.",
        )


def _below_limit(shortest: str, limit: str | None, margin_s: int) -> None:
    shortest_s, limit_s = seconds(shortest), None if limit is None else seconds(limit)
    if limit_s is None:
        refuse(BELOW_LIMIT, f"time_min is {shortest}, and the job has no time limit", otherwise="Give --time-limit.")
    if shortest_s is None or not margin_s < shortest_s <= limit_s:
        refuse(
            BELOW_LIMIT,
            f"time_min is {shortest}, time_limit is {limit}, and time_limit_signal.margin_s is {margin_s}",
            otherwise=f"Take --time-min {written(max(limit_s // 2, min(limit_s, 2 * margin_s)))}.",
        )
