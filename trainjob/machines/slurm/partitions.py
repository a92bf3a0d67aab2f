"""Reads sinfo, scontrol and sacctmgr: a cluster's partitions, and what a job may have of their nodes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from trainjob.contract.errors import UserError
from trainjob.machines.machine import Machine
from trainjob.machines.slurm import commands

_SINFO = ["sinfo", "--noheader", "--exact", "--format=%P|%a|%l|%D|%c|%m|%G|%s|%Z"]
_FIELDS = 9
_SETTING = re.compile(r"^(\S+)\s*=\s*(.*?)\s*$", re.MULTILINE)
# gpu:a100:4(S:0-1), gpu:4, or several of them, separated by commas outside of brackets.
_GRES = re.compile(r"(?P<name>[^:(,]+):(?:(?P<type>[^:(,]+):)?(?P<count>[0-9]+)")


@dataclass(frozen=True)
class PartitionNodes:
    """Nodes of one kind in a partition. `gres` is (name, type or None, count) of one node."""

    count: int
    cpus: int
    memory_mb: int
    gres: tuple[tuple[str, str | None, int], ...]
    threads_per_core: int = 1

    def accelerators(self, name: str) -> int:
        """Return how many of a resource one node has."""
        return sum(count for resource, _, count in self.gres if resource == name)


@dataclass(frozen=True)
class Partition:
    """One partition. `min_nodes` and `max_nodes` are those of one job; None: no limit."""

    name: str
    is_default: bool
    is_up: bool
    max_time: str
    min_nodes: int
    max_nodes: int | None
    nodes: tuple[PartitionNodes, ...]

    @property
    def node_count(self) -> int:
        """The number of its nodes."""
        return sum(one.count for one in self.nodes)


def partitions(machine: Machine) -> list[Partition]:
    """Return the partitions that sinfo lists, in its order. Raises as commands.call does."""
    return list(parse(commands.call(machine, _SINFO).text))


def parse(text: str) -> Iterator[Partition]:
    """Yield the partitions in the output of sinfo, which has a line for each kind of node in each partition."""
    lines: dict[str, list[list[str]]] = {}
    for line in text.splitlines():
        fields = line.strip().split("|")
        if len(fields) == _FIELDS:
            lines.setdefault(fields[0], []).append(fields)
    for shown, rows in lines.items():
        _, available, limit, *_, sizes, _ = rows[0]
        # A single number where the least and the most are the same.
        least, most = sizes.partition("-")[0], sizes.rpartition("-")[2]
        nodes = []
        for fields in rows:
            # "64+" if nodes differ, although sinfo was asked for each kind.
            count, cpus, memory, threads = (int(field.rstrip("+")) for field in (*fields[3:6], fields[8]))
            nodes.append(PartitionNodes(count, cpus, memory, tuple(gres(fields[6])), threads))
        yield Partition(
            name=shown.rstrip("*"),
            is_default=shown.endswith("*"),
            is_up=available == "up",
            max_time="UNLIMITED" if limit in ("infinite", "n/a") else limit,
            min_nodes=int(least) if least.isdigit() else 1,
            max_nodes=int(most) if most.isdigit() else None,
            nodes=tuple(nodes),
        )


def gres(text: str) -> Iterator[tuple[str, str | None, int]]:
    """Yield name, type and count of each resource in sinfo's column of a node's GRES."""
    if text != "(null)":
        for match in _GRES.finditer(re.sub(r"\([^)]*\)", "", text)):
            yield match["name"], match["type"], int(match["count"])


def configuration(machine: Machine) -> dict[str, str]:
    """Return the settings of slurm.conf. Raises as commands.call does."""
    return dict(_SETTING.findall(commands.call(machine, ["scontrol", "show", "config"]).text))


@dataclass(frozen=True)
class SlurmAccount:
    """Whether each job is charged to an account, and the one that is charged unless the job names another, or ""."""

    is_demanded: bool
    default: str


def settings_of(machine: Machine, name: str) -> dict[str, str]:
    """Return the settings of a partition. Raises as commands.call does."""
    return _pairs(commands.call(machine, ["scontrol", "show", "partition", name]).text)


def _pairs(shown: str) -> dict[str, str]:
    return dict(pair.split("=", 1) for pair in shown.split() if "=" in pair)


def allowed_nodes(
    machine: Machine, name: str, alike: PartitionNodes, settings: Mapping[str, str], of_partition: Mapping[str, str]
) -> PartitionNodes:
    """Return nodes of partition `name` that are `alike`, with the CPUs and memory that a job may have of each.

    `settings` are those of slurm.conf. Raises as commands.call does.
    """
    cpus, memory_mb = alike.cpus, alike.memory_mb
    for line in commands.call(machine, ["scontrol", "show", "node", "-o"]).text.splitlines():
        shown = _pairs(line)
        is_like = (shown.get("CPUTot"), shown.get("RealMemory")) == (str(alike.cpus), str(alike.memory_mb))
        if is_like and name in shown.get("Partitions", "").split(","):
            kept = int(shown.get("CoreSpecCount", 0)) * alike.threads_per_core
            cpus = min(cpus, int(shown.get("CPUEfctv", alike.cpus - kept)))
            memory_mb = min(memory_mb, alike.memory_mb - int(shown.get("MemSpecLimit", 0)))
    limits = {**settings, **{key: value for key, value in of_partition.items() if value != "UNLIMITED"}}
    cpus = min(cpus, _number(limits, "MaxCPUsPerNode") or cpus)
    cpus -= cpus % alike.threads_per_core
    for most_mb in (_number(limits, "MaxMemPerNode"), _number(limits, "MaxMemPerCPU") * cpus):
        memory_mb = min(memory_mb, most_mb or memory_mb)
    return replace(alike, cpus=cpus, memory_mb=memory_mb)


def _number(limits: Mapping[str, str], name: str) -> int:
    """Return a limit; 0 where there is none."""
    text = limits.get(name, "")
    return int(text) if text.isdigit() else 0


def account(machine: Machine, settings: Mapping[str, str]) -> SlurmAccount:
    """Return the account of this user's jobs, as far as sacctmgr says it: some sites keep it to administrators."""
    enforced = settings.get("AccountingStorageEnforce", "none")
    if "associations" not in enforced and "limits" not in enforced:
        return SlurmAccount(is_demanded=False, default="")
    words = ["sh", "-c", 'exec sacctmgr -n -P show user "$(id -un)" format=DefaultAccount']
    try:
        answer = commands.call(machine, words, program="sacctmgr").text
    except UserError:
        answer = ""
    return SlurmAccount(is_demanded=True, default=answer.strip().partition("\n")[0])
