"""Limits of a job: who starts arrays and ranges of hosts, its time limit, and how often it writes checkpoints."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from trainjob.cluster import slurm_text
from trainjob.cluster.base import Cluster
from trainjob.cluster.job import Job
from trainjob.cluster.slurm_text import duration, seconds
from trainjob.contract.steps import Retry, parse_retry
from trainjob.planning.rules import refuse
from trainjob.planning.words import quantity

ONLY_SLURM = "only Slurm starts the elements of an array"
SLURM_CHOOSES = "only Slurm chooses how many hosts a job gets, and poprun needs a fixed number"
SLURM_GIVES = "only Slurm gives a job more memory or time"
ALIKE_GIVES = "an attempt may ask for more where all nodes are alike"
HAS_A_LIMIT = "an attempt asks for more time than a time limit below the site's longest"
WITHIN_SITE = "a job's time limit stays within the site's max_time"
LONGER_THAN_MARGIN = "a job trains before it is asked to checkpoint"
BELOW_LIMIT = "the shortest time limit is below the time limit and above the margin of its signal"


@dataclass(frozen=True)
class TimeLimits:
    """The time limit of a job and the site's longest, as Slurm writes them; None: there is none.

    `margin_s` are the seconds between the request to stop and the time limit.
    """

    limit: str | None
    longest: str | None
    margin_s: int

    @classmethod
    def of(cls, cluster: Cluster, job: Job) -> TimeLimits:
        """Return the limits of `job` on `cluster`."""
        return cls(cluster.time_limit_of(job), cluster.longest_time, cluster.stop_margin_s)

    @property
    def limit_s(self) -> int | None:
        """The time limit in seconds; None also where it is UNLIMITED."""
        return None if self.limit is None else seconds(self.limit)

    @property
    def longest_s(self) -> int | None:
        """The site's longest in seconds; None also where it is UNLIMITED."""
        return None if self.longest is None else seconds(self.longest)

    @property
    def asked_before_s(self) -> float | None:
        """The seconds before the time limit at which the job is asked to stop; None without a time limit."""
        return None if self.limit is None else float(self.margin_s)

    def longer(self, retry: Retry) -> list[str]:
        """Return the limits that later attempts may ask for, each longer than the one before; none without one."""
        if retry.time is None or self.limit_s is None:
            return []
        most = None if self.longest_s is None else self.longest_s // 60
        # Slurm counts in minutes.
        return [duration(60 * minutes) for minutes in growing(-(-self.limit_s // 60), retry.time, retry.attempts, most)]


def check_slurm(cluster: Cluster, job: Job, times: TimeLimits) -> None:
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
            f"array is {job.array}, and {_where(cluster)}",
            otherwise="Leave --array and --sweep out and submit each setting by itself, "
            "or submit it to the queue of a cluster of kind slurm (--in none).",
        )
    if cluster.has_scheduler:
        _check_times(times, job.time_min)
    if job.retry:
        _check_retry(cluster, job, times)


def _where(cluster: Cluster) -> str:
    is_inside = cluster.hosts_are_given and not cluster.has_scheduler
    return "the run is to be inside a job (--in)" if is_inside else f"the cluster is of kind {cluster.kind}"


def _check_retry(cluster: Cluster, job: Job, times: TimeLimits) -> None:
    leave_out = "Leave retry out."
    if not cluster.has_scheduler:
        refuse(SLURM_GIVES, f"retry is given, and {_where(cluster)}", otherwise=leave_out)
    if cluster.capacity.groups:
        refuse(ALIKE_GIVES, "retry is given, and nodes is a list of groups", otherwise=leave_out)
    retry = parse_retry(job.retry)
    if retry.time is not None and not times.longer(retry):
        stated = "no time limit is stated" if times.limit is None else f"time_limit is {times.limit}"
        refuse(
            HAS_A_LIMIT,
            f"retry has time, {stated}" + (f", and max_time is {times.longest}" if times.longest else ""),
            otherwise="Take time out of retry, or give a --time-limit that can grow.",
        )


def growing(value: int, percent: int, steps: int, most: int | None) -> list[int]:
    """Return `value` grown by `percent` once, twice and so on, at most to `most`; each is more than the one before."""
    grown: list[int] = []
    for _ in range(steps):
        more = -(-value * (100 + percent) // 100)
        more = more if most is None else min(more, most)
        if more <= value:
            break
        grown.append(more)
        value = more
    return grown


def retry_rows(job: Job) -> Iterator[tuple[str, str]]:
    """Yield the plan's row about attempts that ask for more."""
    if job.retry:
        retry = parse_retry(job.retry)
        mem, time = (
            [f"{percent} % more {what}"] if percent else []
            for percent, what in (
                (retry.mem, "memory after one that ran out of it"),
                (retry.time, "time after one that its limit ended"),
            )
        )
        yield "retry", f"{quantity(retry.attempts, 'attempt')} with {', or '.join([*mem, *time])}"


def array_rows(job: Job) -> Iterator[tuple[str, str]]:
    """Yield the plan's row about the array."""
    if job.array is not None:
        elements = slurm_text.parse_array(job.array)
        at_once = "" if elements.at_once is None else f", {elements.at_once} at once"
        yield "array", f"{quantity(len(elements.numbers), 'element')} ({slurm_text.ranges(elements.numbers)}){at_once}"


def _check_times(times: TimeLimits, shortest: str | None) -> None:
    limit, most, limit_s, most_s, margin_s = times.limit, times.longest, times.limit_s, times.longest_s, times.margin_s
    if limit is not None and most_s is not None and (limit_s is None or limit_s > most_s):
        refuse(WITHIN_SITE, f"time_limit is {limit}, max_time is {most}", otherwise=f"Take --time-limit {most}.")
    if limit_s is not None and limit_s <= margin_s:
        refuse(
            LONGER_THAN_MARGIN,
            f"time_limit is {limit} = {limit_s} s, and time_limit_signal.margin_s is {margin_s}",
            otherwise=f"Take --time-limit {duration(2 * margin_s)}, or a smaller margin_s in the cluster file.",
        )
    if shortest is None:
        return
    if limit_s is None:
        refuse(BELOW_LIMIT, f"time_min is {shortest}, and the job has no time limit", otherwise="Give --time-limit.")
    shortest_s = seconds(shortest)
    if shortest_s is None or not margin_s < shortest_s <= limit_s:
        refuse(
            BELOW_LIMIT,
            f"time_min is {shortest}, time_limit is {limit}, and time_limit_signal.margin_s is {margin_s}",
            otherwise=f"Take --time-min {duration(max(limit_s // 2, min(limit_s, 2 * margin_s)))}.",
        )


RATE_OF_FAILURES = "checkpoint_every: auto follows how often hosts fail"


def check_interval(cluster: Cluster, job: Job) -> None:
    """Raise Broken if the interval is `auto` and the cluster file does not say how often hosts fail."""
    if job.checkpoint_every == "auto" and job.command is None and cluster.mean_hours_between_failures is None:
        refuse(
            RATE_OF_FAILURES,
            "checkpoint_every is auto, and the cluster file has no mean_hours_between_failures",
            otherwise="State mean_hours_between_failures in the cluster file, or give --checkpoint-every a number.",
        )


def failure_every_s(cluster: Cluster, hosts: int) -> float | None:
    """Return the mean seconds between two failures among `hosts` hosts; None if the cluster file does not say."""
    hours = cluster.mean_hours_between_failures
    return None if hours is None else 3600 * hours / hosts


def checkpoint_rows(cluster: Cluster, job: Job, hosts: int) -> Iterator[tuple[str, str]]:
    """Yield the plan's row about checkpoints."""
    hours = cluster.mean_hours_between_failures
    if job.checkpoint_every == "auto" and job.command is None and hours is not None:
        failures = f"{hours:g} h between failures ÷ {quantity(hosts, 'host')}"
        yield "checkpoints", f"every √(2 × time of one × {failures}); the time of one is measured"
