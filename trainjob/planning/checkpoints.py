"""The interval between checkpoints if it is derived from their cost (`checkpoint_every: auto`)."""

from __future__ import annotations

from collections.abc import Iterator

from trainjob.cluster.base import Cluster
from trainjob.cluster.job import Job
from trainjob.planning.rules import refuse
from trainjob.planning.words import quantity

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


def limit_margin_s(cluster: Cluster, job: Job) -> float | None:
    """Return the seconds between the request to stop and the time limit; None without a time limit."""
    return None if cluster.time_limit_of(job) is None else float(cluster.stop_margin_s)


def facts(cluster: Cluster, job: Job, hosts: int) -> Iterator[tuple[str, str]]:
    """Yield the plan's row about checkpoints."""
    hours = cluster.mean_hours_between_failures
    if job.checkpoint_every == "auto" and job.command is None and hours is not None:
        failures = f"{hours:g} h between failures ÷ {quantity(hosts, 'host')}"
        yield "checkpoints", f"every √(2 × time of one × {failures}); the time of one is measured"
