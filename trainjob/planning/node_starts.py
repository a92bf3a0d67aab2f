"""Commands that a job starts once per node, because they start the ranks of their node themselves."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from trainjob.cluster.job import Job
from trainjob.contract import node_launchers
from trainjob.planning.counts import Counts
from trainjob.planning.rules import refuse
from trainjob.planning.words import quantity

ONLY_COMMANDS = "only a command is started once per node: the runtime starts a task's ranks"
NOT_ON_IPUS = "poprun starts every instance of a job on IPUs"
ALIKE = "a launcher starts as many ranks on every node"
AGREES = "a launcher starts the ranks that the job has"


def per_node(counts: Counts, job: Job) -> Counts:
    """Return the counts with one instance per host, which drives a replica for each of its ranks.

    They are unchanged if every rank is started by itself. Raises Broken if the job can't start anything once per node,
    or if the launcher's own options contradict the job.
    """
    if job.command_per == "node":
        _refuse_unfit(counts, job)
    if not is_per_node(job, counts.device_word, has_groups=bool(counts.groups)):
        return counts
    found = node_launchers.contradiction(job.command or [], counts.hosts, counts.instances // counts.hosts)
    if found is not None:
        values, cure = found
        refuse(AGREES, values, otherwise=f"{cure[:1].upper()}{cure[1:]}.")
    return replace(counts, instances=counts.hosts)


def is_per_node(job: Job, device_word: str, *, has_groups: bool) -> bool:
    """Return whether the command starts once per node, because the job says so or it begins with such a launcher."""
    if job.command_per is not None or job.command is None:
        return job.command_per == "node"
    found = node_launchers.find(job.command)
    if found is None or has_groups or device_word == "IPU":
        return False
    return found.launcher.starts_cpu_ranks or device_word != "CPU"


def _refuse_unfit(counts: Counts, job: Job) -> None:
    without = "Leave --command-per out."
    if job.command is None:
        refuse(ONLY_COMMANDS, "command_per is node, and the job runs a task", otherwise=without)
    if counts.device_word == "IPU":
        refuse(NOT_ON_IPUS, "command_per is node", otherwise=without)
    if counts.groups:
        refuse(ALIKE, "nodes is a list of groups", otherwise="Take --command-per rank, or nodes that are all alike.")


def facts(counts: Counts, job: Job) -> Iterator[tuple[str, str]]:
    """Yield the plan's row about the launcher."""
    if job.command is None or not is_per_node(job, counts.device_word, has_groups=bool(counts.groups)):
        return
    found = node_launchers.find(job.command)
    name = found.launcher.name if found is not None else job.command[0]
    each, nodes = quantity(counts.replicas // counts.instances, "rank"), quantity(counts.hosts, "node")
    yield "launcher", f"{name} starts {each} on each of {nodes}: the command runs once per node"
