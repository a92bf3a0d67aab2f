"""Checks of a Slurm job and of its cluster file: against the limits in the file, and against the live cluster."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from trainjob.check.context import Context
from trainjob.cluster.base import Cluster
from trainjob.cluster.slurm_text import seconds
from trainjob.contract.errors import Problem, UserError, nearest, of_error
from trainjob.kinds.slurm.directives import cpus_per_task, memory_options, of_each_group
from trainjob.kinds.slurm.model import SlurmCluster
from trainjob.machines.machine import Machine
from trainjob.machines.slurm import commands, drafted, partitions
from trainjob.machines.slurm.partitions import Partition, PartitionNodes
from trainjob.planning.words import quantity
from trainjob.render.request import Request

# sbatch reads a number without a unit as megabytes.
_UNITS_MB = {"": 1.0, "K": 1 / 1024, "M": 1.0, "G": 1024.0, "T": 1024.0 * 1024}
_MEMORY = re.compile(r"([0-9]+)([KMGT]?)B?", re.IGNORECASE)
_ACCELERATORS = ("gres", "gpus-per-node")
_START = re.compile(r"to start at (\S+)")


# -- the cluster file alone ---------------------------------------------------------------------


def limits(context: Context) -> Iterator[Problem]:
    """Yield requests that exceed the node's memory or accelerators in the cluster file."""
    for request, cluster in of_each_group(context.request, SlurmCluster.of(context.request.cluster)):
        requested, most_gb = _memory(request, cluster), cluster.node.memory_gb
        if requested is not None and most_gb is not None and requested[1] > most_gb * 1024:
            option, size_mb = requested
            ranks = request.plan.topology.instances_per_host
            yield Problem(
                "memory",
                f"directives.{option} {cluster.directives[option]} is {size_mb / 1024:g} GB a node "
                f"({size_mb / 1024 / ranks:g} GB for each of {ranks} ranks), and nodes.memory_gb is {most_gb}",
                f"Nearest that works: directives.mem {most_gb}G ({most_gb / ranks:g} GB a rank), "
                "or fewer instances a node",
            )
        most = cluster.node.accelerators
        for option in _ACCELERATORS:
            last = str(cluster.directives.get(option, "")).rpartition(":")[2]
            if last.isdigit() and int(last) > most:
                text = f"directives.{option} requests {last} accelerators of a node, and nodes.accelerators is {most}"
                yield Problem("accelerators", text, f"Nearest that works: {most}, or remove the directive")


def _memory(request: Request, cluster: SlurmCluster) -> tuple[str, float] | None:
    """Return the directive that requests memory, and its size for one node in MB; None if there is none."""
    for option, factor in memory_options(request, cluster).items():
        size = _MEMORY.fullmatch(str(cluster.directives.get(option, "")))
        if size:
            return option, int(size[1]) * _UNITS_MB[size[2].upper()] * factor
    return None


# -- the live cluster ---------------------------------------------------------------------------


def missing(context: Context) -> Iterator[Problem]:
    """Raise UserError if jobs can't be submitted to Slurm from the machine. The controller isn't asked."""
    commands.call(context.machine, ["sinfo", "--version"])
    yield from ()


def live(context: Context) -> Iterator[Problem]:
    """Yield requests that the live partition would refuse. Raises UserError if Slurm does not answer."""
    machine, request = context.machine, context.request
    by_name = {partition.name: partition for partition in partitions.partitions(machine)}
    if request.elements and not request.cluster.packs:
        size = partitions.configuration(machine).get("MaxArraySize", "")
        last, most = max(request.elements), int(size) - 1 if size.isdigit() else None
        if most is not None and last > most:
            text = f"--array {request.job.array} has element {last}"
            text += f", and {machine.name}'s Slurm takes elements up to {most}"
            yield Problem("array", text, f"Nearest that works: --array 0-{most}; submit the others as a second run")
    for part, cluster in of_each_group(request, SlurmCluster.of(request.cluster)):
        for name in filter(None, str(cluster.directives.get("partition", "")).split(",")):
            if name in by_name:
                yield from _of_partition(by_name[name], part, cluster)
                continue
            close = nearest(name, list(by_name))
            meant = f"directives.partition: {close}, or one of" if close else "one of"
            text = f"directives.partition is {name}, and {machine.name} has no such partition"
            yield Problem("partition", text, f"Nearest that works: {meant} {', '.join(by_name)}")


def _of_partition(partition: Partition, request: Request, cluster: SlurmCluster) -> Iterator[Problem]:
    where = f"partition {partition.name}"
    if not partition.is_up:
        yield Problem("partition", f"{where} is down or takes no jobs now", "Wait, or take another partition")
    time, most_s = request.times.limit, seconds(partition.max_time)
    time_s = request.times.limit_s if time else 0
    if most_s is not None and (time_s is None or time_s > most_s):
        cure = f"Nearest that works: --time-limit {partition.max_time}; the run then continues from its checkpoint"
        yield Problem("time-limit", f"time limit {time} is above the {partition.max_time} of {where}", cure)
    hosts = request.plan.host_count
    most = min(partition.node_count, partition.max_nodes or partition.node_count)
    if hosts > most:
        yield Problem("nodes", f"the job takes {hosts} nodes, and {where} gives one job {most}", f"Give --hosts {most}")
    if hosts < partition.min_nodes:
        text = f"the job takes {quantity(hosts, 'node')}, and {where} takes jobs of at least {partition.min_nodes}"
        cure = (
            f"Give --hosts {partition.min_nodes}, and set limits.min_nodes: {partition.min_nodes} in the cluster file"
        )
        yield Problem("nodes", text, cure)
    yield from _of_node(partition, where, request, cluster)


def _of_node(partition: Partition, where: str, request: Request, cluster: SlurmCluster) -> Iterator[Problem]:
    kind, topology = cluster.node.accelerator, request.plan.topology
    per_node = topology.devices // topology.host_count
    most = max((node.accelerators(cluster.node.gres_name) for node in partition.nodes), default=0)
    if kind != "cpu" and cluster.request in ("gres", "gpus-per-node") and per_node > most:
        text = f"the job takes {per_node} of {kind} on a node, and a node of {where} has {most}"
        yield Problem("accelerators", text, f"Nearest that works: nodes.accelerators {most} in the cluster file")
    memory = _memory(request, cluster)
    most_mb = max((node.memory_mb for node in partition.nodes), default=0)
    if memory is not None and memory[1] > most_mb:
        text = f"directives.{memory[0]} amounts to {memory[1]:.0f} MB a node, and a node of {where} has {most_mb}"
        yield Problem("memory", text, f"Nearest that works: directives.mem {most_mb}")
    threads, stated = {node.threads_per_core for node in partition.nodes}, cluster.node.threads_per_core
    # Only this hint makes the job depend on it.
    if cluster.directives.get("hint") == "nomultithread" and stated not in threads:
        shown = " or ".join(str(number) for number in sorted(threads))
        text = f"nodes.threads_per_core is {stated}, and nodes of {where} have {shown}"
        yield Problem("threads-per-core", text, f"Set nodes.threads_per_core: {shown} in the cluster file")
    taken = cpus_per_task(request, cluster) * cluster.threads_left_idle
    cpus = taken * topology.instances_per_host
    most_cpus = max((node.cpus for node in partition.nodes), default=0)
    if cpus > most_cpus:
        text = f"the job takes {cpus} CPUs of a node, and a node of {where} has {most_cpus}"
        yield Problem("cpus", text, f"Nearest that works: nodes.cpus {most_cpus} in the cluster file")


def test_only(machine: Machine, script: bytes) -> str | Problem:
    """Return when Slurm would start the job, or the reason why it would refuse it. This uses up a job id."""
    try:
        answer = commands.call(machine, ["sbatch", "--test-only"], stdin=script)
    except UserError as error:
        return of_error("slurm", error)
    start = _START.search(answer.stderr + answer.text)
    return start[1].replace("T", " ") if start else "at a time that it does not give"


# -- the cluster file compared with the live cluster ------------------------------------------------------------------

_MB_PER_GB = 1024


@dataclass(frozen=True)
class Change:
    """A key of the cluster file, with its value there and on the live cluster."""

    key: str
    stated: str
    live: str


def changes(named: Cluster, machine: Machine) -> list[Change]:
    """Return in what the file and the live cluster differ. Raises UserError if Slurm does not answer.

    Of a file with several groups of nodes, only the limits and Slurm's release are compared.
    """
    cluster = SlurmCluster.of(named)
    listed = partitions.partitions(machine)
    name = cluster.partition
    found = next((one for one in listed if (one.name == name if name else one.is_default)), None)
    if found is None:
        names = ", ".join(one.name for one in listed)
        return [Change("directives.partition", name or "the default one", f"there is none; it has {names}")]
    settings, words = partitions.configuration(machine), partitions.settings_of(machine, found.name)
    compared = [*_of_limits(cluster, found), *_of_slurm(cluster, settings, words, machine)]
    if not cluster.has_groups:
        compared += _of_nodes(cluster, found, machine, settings, words)
    return [one for one in compared if one.stated != one.live]


def _of_limits(cluster: SlurmCluster, found: Partition) -> Iterator[Change]:
    limits = cluster.limits
    if limits.max_time is not None and seconds(limits.max_time) != seconds(found.max_time):
        yield Change("limits.max_time", limits.max_time, found.max_time)
    yield Change("limits.min_nodes", str(limits.min_nodes), str(max(1, found.min_nodes)))
    if limits.max_nodes is not None:
        yield Change("limits.max_nodes", str(limits.max_nodes), str(found.max_nodes or "unlimited"))


def _of_slurm(
    cluster: SlurmCluster, settings: dict[str, str], words: dict[str, str], machine: Machine
) -> Iterator[Change]:
    version = settings.get("SLURM_VERSION", "")
    if cluster.slurm.version is not None and not version.startswith(cluster.slurm.version):
        yield Change("slurm.version", cluster.slurm.version, version)
    if "task_plugin" in cluster.slurm.stated:
        yield Change("slurm.task_plugin", cluster.slurm.task_plugin, drafted.task_plugin(settings))
    _, preemption = drafted.preemption(settings, words)
    if preemption is not None:
        yield Change("preemption", cluster.preemption, preemption)
    account = partitions.account(machine, settings)
    is_named = "account" in (*cluster.required_directives, *cluster.directives)
    if account.is_demanded and not account.default and not is_named:
        enforced = settings["AccountingStorageEnforce"]
        yield Change("required_directives", "no account", f"AccountingStorageEnforce={enforced}: an account is needed")


def _of_nodes(
    cluster: SlurmCluster, found: Partition, machine: Machine, settings: dict[str, str], words: dict[str, str]
) -> Iterator[Change]:
    ours, kind = cluster.node, cluster.node.gres_name

    def likeness(nodes: PartitionNodes) -> tuple[bool, bool, int]:
        return nodes.accelerators(kind) == ours.accelerators, nodes.cpus == ours.cpus, nodes.count

    whole = max(found.nodes, key=likeness)
    theirs = partitions.allowed_nodes(machine, found.name, whole, settings, words)
    alike = sum(one.count for one in found.nodes if one.accelerators(kind) == theirs.accelerators(kind))
    yield Change("nodes.count", str(ours.count), str(alike))
    yield Change("nodes.accelerators", str(ours.accelerators), str(theirs.accelerators(kind)))
    yield Change("nodes.cpus", str(ours.cpus), str(theirs.cpus))
    yield Change("nodes.threads_per_core", str(ours.threads_per_core), str(theirs.threads_per_core))
    types = {model for name, model, _ in theirs.gres if name == kind and model}
    if ours.type is not None and ours.type not in types:
        yield Change("nodes.type", ours.type, ", ".join(sorted(types)) or "no type")
    # Jobs may use less than a node has, and never more.
    if ours.memory_gb is not None and ours.memory_gb * _MB_PER_GB > theirs.memory_mb:
        yield Change("nodes.memory_gb", str(ours.memory_gb), f"at most {theirs.memory_mb // _MB_PER_GB}")
