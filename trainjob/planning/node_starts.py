"""Commands that a job starts once per node, because they start the ranks of their node themselves."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from trainjob.cluster.job import Job
from trainjob.contract.programs import launchers
from trainjob.contract.roles import parse
from trainjob.planning.rules import refuse
from trainjob.planning.words import quantity
from trainjob.records.job import Topology

ONLY_COMMANDS = "only a command is started once per node: the runtime starts a task's ranks"
NOT_ON_IPUS = "poprun starts every instance of a job on IPUs"
ALIKE = "a launcher starts as many ranks on every node"
AGREES = "a launcher starts the ranks that the job has"


def per_node(counts: Topology, job: Job) -> Topology:
    """Return the counts with one instance per host, which drives a replica for each of its ranks.

    They are unchanged if every rank is started by itself. Raises Broken if the job can't start anything once per node,
    or if the launcher's own options contradict the job.
    """
    without = "Leave --command-per out."
    if job.command_per == "node" and job.command is None:
        refuse(ONLY_COMMANDS, "command_per is node, and the job runs a task", otherwise=without)
    if job.command_per == "node" and counts.device == "IPU":
        refuse(NOT_ON_IPUS, "command_per is node", otherwise=without)
    if job.command_per == "node" and counts.groups:
        refuse(ALIKE, "nodes is a list of groups", otherwise="Take --command-per rank, or nodes that are all alike.")
    if not is_per_node(job, counts):
        return counts
    found = launchers.contradiction(job.command or [], counts.host_count, counts.instances // counts.host_count)
    if found is not None:
        values, cure = found
        refuse(AGREES, values, otherwise=f"{cure[:1].upper()}{cure[1:]}.")
    hosts, replicas = counts.host_count, counts.replicas
    return replace(counts, instances=hosts, instances_per_host=1, replicas_per_instance=replicas // hosts)


def is_per_node(job: Job, counts: Topology) -> bool:
    """Return whether the command starts once per node, because the job says so or it begins with such a launcher."""
    if job.command_per is not None or job.command is None:
        return job.command_per == "node"
    found = launchers.find(job.command)
    if found is None or counts.groups or counts.device == "IPU":
        return False
    return found.launcher.starts_cpu_ranks or counts.device != "CPU"


def facts(counts: Topology, job: Job) -> Iterator[tuple[str, str]]:
    """Yield the plan's row about the launcher."""
    if job.command is None or not is_per_node(job, counts) or parse(job.roles).main.ray:
        return
    found = launchers.find(job.command)
    name = found.launcher.name if found is not None else job.command[0]
    each, nodes = quantity(counts.replicas_per_instance, "rank"), quantity(counts.host_count, "node")
    yield "launcher", f"{name} starts {each} on each of {nodes}: the command runs once per node"
