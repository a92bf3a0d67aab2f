"""Reads sinfo and scontrol: a cluster's partitions and the resources of their nodes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from trainjob.machines.machine import Machine
from trainjob.machines.slurm import commands

_SINFO = ["sinfo", "--noheader", "--exact", "--format=%P|%a|%l|%D|%c|%m|%G|%s|%Z"]
_FIELDS = 9
# gpu:a100:4(S:0-1), gpu:4, or several of them, separated by commas outside of brackets.
_GRES = re.compile(r"(?P<name>[^:(,]+):(?:(?P<type>[^:(,]+):)?(?P<count>[0-9]+)")


@dataclass(frozen=True)
class Nodes:
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
    nodes: tuple[Nodes, ...]

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
            nodes.append(Nodes(count, cpus, memory, tuple(gres(fields[6])), threads))
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
