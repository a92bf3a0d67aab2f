"""What the machines of a cluster have: all alike, or in groups that are each alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from trainjob.cluster.common import Count, DirectiveName, Line, Number, Word
from trainjob.cluster.strict import BreachError, Strict, key, required


@dataclass(frozen=True, kw_only=True)
class Node(Strict):
    """One of several machines that are all alike."""

    accelerator: Literal["gpu", "ipu", "cpu"] = key("cpu", "What a rank trains on.")
    accelerators: Number = key(0, "Accelerators of one node.")
    type: Word | None = key(None, "Type name in the GRES (a100); absent where the site has none.")
    cpus: Count | None = key(None, "CPUs of one node.")
    memory_gb: Count | None = key(None, "Memory of one node that jobs may use, in GB.")

    def enforce_rules(self) -> None:
        """Raise BreachError for accelerators without a number, and the other way round."""
        if (self.accelerator == "cpu") != (self.accelerators == 0):
            raise BreachError(
                "accelerators",
                f"is {self.accelerators} and accelerator is {self.accelerator}",
                "cpu nodes have 0, gpu and ipu nodes at least 1",
            )


@dataclass(frozen=True, kw_only=True)
class Nodes(Node):
    """The nodes of one Slurm partition, all alike; or one of several groups, of which a job takes every node."""

    name: Word | None = key(None, "Name of this group. Absent: the nodes are no list of groups.")
    count: Count = required("Nodes there are; of a group, nodes that each job takes.")
    cpus: Count = required("CPUs of one node, as Slurm counts them: hyper-threads, where it schedules these.")
    threads_per_core: Count = key(
        1,
        "CPUs that share a core (ThreadsPerCore): ranks get whole cores, and with hint: nomultithread one CPU of each.",
    )
    directives: dict[DirectiveName, Line | int | bool] = key(
        {}, "Options of sbatch for the nodes of this group alone, such as its partition or constraint."
    )

    def enforce_rules(self) -> None:
        """Raise BreachError for cores that don't divide the CPUs."""
        super().enforce_rules()
        if self.cpus % self.threads_per_core:
            raise BreachError(
                "threads_per_core", f"is {self.threads_per_core}, and {self.cpus} CPUs are no whole number of cores"
            )


def enforce_rules_of_groups(nodes: Nodes | Sequence[Nodes]) -> None:
    """Raise BreachError for groups that no job can take together, and for what only a group has."""
    if isinstance(nodes, Nodes):
        stated = next((name for name in ("name", "directives") if name in nodes.stated), None)
        if stated is not None:
            raise BreachError("nodes", f"has {stated}, and is no list of groups", f"take {stated} out")
        return
    if len(nodes) < 2:
        raise BreachError("nodes", f"lists {len(nodes)} group, and groups are at least 2", _ALL_ALIKE)
    names = [group.name for group in nodes]
    if None in names or len(set(names)) < len(names):
        found = ", ".join(name or "(no name)" for name in names)
        raise BreachError("nodes", f"has groups called {found}", "give each group a name of its own")
    kinds = {group.accelerator: group.name for group in nodes}
    if len(kinds) > 1:
        found = " and ".join(f"{name} has accelerator: {kind}" for kind, name in kinds.items())
        raise BreachError("nodes", f"differ in what a rank trains on: {found}", "give all groups the same")
    if "ipu" in kinds:
        raise BreachError("nodes", "have IPUs, and poprun starts as many instances on each host", _ALL_ALIKE)


_ALL_ALIKE = "give the nodes without the dash, as one group that is all alike"
