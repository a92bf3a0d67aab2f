"""sinfo and scontrol, read: a cluster's partitions and what their nodes have."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from trainjob.submit.machine import Machine
from trainjob.submit.slurm import commands

_SINFO = ["sinfo", "--noheader", "--exact", "--format=%P|%a|%l|%D|%c|%m|%G|%s"]
_FIELDS = 8
# gpu:a100:4(S:0-1), gpu:4, and several, parted by commas that stand in no brackets.
_GRES = re.compile(r"(?P<name>[^:(,]+):(?:(?P<type>[^:(,]+):)?(?P<count>[0-9]+)")


@dataclass(frozen=True)
class Nodes:
    """Nodes of one kind in a partition. `gres` is (name, type or None, count) of one node."""

    count: int
    cpus: int
    memory_mb: int
    gres: tuple[tuple[str, str | None, int], ...]

    def accelerators(self, name: str) -> int:
        """Return how many of a resource one node has."""
        return sum(count for found, _, count in self.gres if found == name)


@dataclass(frozen=True)
class Partition:
    """One partition. `max_nodes` of one job; None: no limit."""

    name: str
    is_default: bool
    is_up: bool
    max_time: str
    max_nodes: int | None
    nodes: tuple[Nodes, ...]

    @property
    def node_count(self) -> int:
        """All its nodes."""
        return sum(one.count for one in self.nodes)


def partitions(machine: Machine) -> list[Partition]:
    """Return the partitions that sinfo shows us, in its order. Raises as commands.call does."""
    return list(parse(commands.call(machine, _SINFO).text))


def parse(text: str) -> Iterator[Partition]:
    """Yield the partitions in what sinfo has printed: a line for each kind of node in each partition."""
    lines: dict[str, list[list[str]]] = {}
    for line in text.splitlines():
        fields = line.strip().split("|")
        if len(fields) == _FIELDS:
            lines.setdefault(fields[0], []).append(fields)
    yield from (_partition(name, found) for name, found in lines.items())


def _partition(shown: str, lines: Iterable[list[str]]) -> Partition:
    found = list(lines)
    _, available, limit, *_, sizes = found[0]
    most = sizes.rpartition("-")[2]
    return Partition(
        name=shown.rstrip("*"),
        is_default=shown.endswith("*"),
        is_up=available == "up",
        max_time="UNLIMITED" if limit in ("infinite", "n/a") else limit,
        max_nodes=int(most) if most.isdigit() else None,
        nodes=tuple(_nodes(fields) for fields in found),
    )


def _nodes(fields: list[str]) -> Nodes:
    # "64+" where nodes differ although they were to be shown apart.
    count, cpus, memory = (int(field.rstrip("+")) for field in fields[3:6])
    return Nodes(count, cpus, memory, tuple(_gres(fields[6])))


def _gres(text: str) -> Iterator[tuple[str, str | None, int]]:
    if text != "(null)":
        for match in _GRES.finditer(re.sub(r"\([^)]*\)", "", text)):
            yield match["name"], match["type"], int(match["count"])
