"""A Slurm job beside what the live cluster says of itself: its partition's limits and nodes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from trainjob.cluster.faults import nearest
from trainjob.cluster.models import SlurmCluster
from trainjob.cluster.times import seconds
from trainjob.contract.errors import UserError
from trainjob.render.directives import cpus_per_task
from trainjob.render.request import Request
from trainjob.submit.checking import limits
from trainjob.submit.checking.problem import Problem, of_error
from trainjob.submit.machine import Machine
from trainjob.submit.slurm import commands, partitions
from trainjob.submit.slurm.partitions import Partition

_ARRAY_SIZE = re.compile(r"^MaxArraySize\s*=\s*([0-9]+)", re.MULTILINE)
_START = re.compile(r"to start at (\S+)")


def problems(machine: Machine, request: Request, cluster: SlurmCluster) -> Iterator[Problem]:
    """Yield what the live partition would refuse. Raises as commands.call does."""
    known = partitions.partitions(machine)
    yield from _array(machine, request)
    asked = str(cluster.directives.get("partition", "")).split(",")
    found = {one.name: one for one in known}
    for name in filter(None, asked):
        if name in found:
            yield from _of(found[name], request, cluster)
        else:
            yield _unknown(name, list(found), machine)


def _array(machine: Machine, request: Request) -> Iterator[Problem]:
    if not request.tasks:
        return
    found = _ARRAY_SIZE.search(commands.call(machine, ["scontrol", "show", "config"]).text)
    last, most = max(request.tasks), int(found[1]) - 1 if found else None
    if most is not None and last > most:
        text = f"--array {request.job.array} has task {last}, and {machine.name}'s Slurm takes tasks up to {most}"
        yield Problem("array", text, f"Nearest that can: --array 0-{most}; submit the others as a second run")


def _unknown(name: str, known: Sequence[str], machine: Machine) -> Problem:
    close = nearest(name, list(known))
    meant = f"directives.partition: {close}, or one of" if close else "one of"
    text = f"directives.partition is {name}, and {machine.name} has no such partition"
    return Problem("partition", text, f"Nearest that can: {meant} {', '.join(known)}")


def _of(partition: Partition, request: Request, cluster: SlurmCluster) -> Iterator[Problem]:
    where = f"partition {partition.name}"
    if not partition.is_up:
        yield Problem("partition", f"{where} is down or takes no jobs now", "Wait, or take another partition")
    time = request.job.time_limit or cluster.time_limit
    if time and _exceeds(time, partition.max_time):
        cure = f"Nearest that can: --time-limit {partition.max_time}; the run goes on after it from its checkpoint"
        yield Problem("time-limit", f"time limit {time} is above the {partition.max_time} of {where}", cure)
    yield from _size(partition, where, len(request.plan.topology.hosts))
    yield from _node(partition, where, request, cluster)


def _exceeds(asked: str, limit: str) -> bool:
    wanted_s, most_s = seconds(asked), seconds(limit)
    return most_s is not None and (wanted_s is None or wanted_s > most_s)


def _size(partition: Partition, where: str, hosts: int) -> Iterator[Problem]:
    most = min(partition.node_count, partition.max_nodes or partition.node_count)
    if hosts > most:
        yield Problem("nodes", f"the job takes {hosts} nodes, and {where} gives one job {most}", f"Give --hosts {most}")


def _node(partition: Partition, where: str, request: Request, cluster: SlurmCluster) -> Iterator[Problem]:
    kind, topology = cluster.nodes.accelerator, request.plan.topology
    wanted = topology.devices // len(topology.hosts)
    most = max((one.accelerators(kind) for one in partition.nodes), default=0)
    if kind != "cpu" and cluster.request in ("gres", "gpus-per-node") and wanted > most:
        text = f"the job takes {wanted} of {kind} on a node, and a node of {where} has {most}"
        yield Problem("accelerators", text, f"Nearest that can: nodes.accelerators {most} in the cluster file")
    memory = limits.memory_mb(request, cluster)
    most_mb = max((one.memory_mb for one in partition.nodes), default=0)
    if memory is not None and memory[1] > most_mb:
        text = f"directives.{memory[0]} comes to {memory[1]:.0f} MB a node, and a node of {where} has {most_mb}"
        yield Problem("memory", text, f"Nearest that can: directives.mem {most_mb}")
    cpus = cpus_per_task(cluster, topology.instances_per_host) * topology.instances_per_host
    most_cpus = max((one.cpus for one in partition.nodes), default=0)
    if cpus > most_cpus:
        text = f"the job takes {cpus} CPUs of a node, and a node of {where} has {most_cpus}"
        yield Problem("cpus", text, f"Nearest that can: nodes.cpus {most_cpus} in the cluster file")


def test_only(machine: Machine, script: bytes) -> str | Problem:
    """Return when Slurm would start the job, or why it would not take it. It uses up a job id."""
    try:
        said = commands.call(machine, ["sbatch", "--test-only"], stdin=script)
    except UserError as error:
        return of_error("slurm", error)
    found = _START.search(said.stderr + said.text)
    return found[1].replace("T", " ") if found else "a time that it does not say"
