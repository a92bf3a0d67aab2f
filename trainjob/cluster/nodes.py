"""The accelerators, CPUs and memory of a cluster's machines: all alike, or in groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from trainjob.cluster.common import Count, DirectiveName, Line, Number, Word
from trainjob.cluster.strict import BreachError, Strict, key, required


@dataclass(frozen=True, kw_only=True)
class Node(Strict):
    """One of several equal machines."""

    accelerator: Literal["gpu", "ipu", "cpu"] = key("cpu", "The device that a rank trains on.")
    accelerators: Number = key(0, "Accelerators of one node.")
    type: Word | None = key(None, "Type name in the GRES (a100). Absent: the site has no type names.")
    cpus: Count | None = key(None, "CPUs of one node.")
    memory_gb: Count | None = key(None, "Memory of one node that jobs may use, in GB.")

    def enforce_rules(self) -> None:
        """Raise BreachError if the number of accelerators contradicts their kind."""
        if (self.accelerator == "cpu") != (self.accelerators == 0):
            raise BreachError(
                "accelerators",
                f"is {self.accelerators} and accelerator is {self.accelerator}",
                "cpu nodes have 0, gpu and ipu nodes at least 1",
            )


@dataclass(frozen=True, kw_only=True)
class Nodes(Node):
    """The equal nodes of one Slurm partition; or one of several groups, of which a job takes every node."""

    name: Word | None = key(None, "Name of this group. Absent: the nodes are not a list of groups.")
    count: Count = required("Number of nodes; of a group, nodes that each job takes.")
    cpus: Count = required("CPUs of one node, as Slurm counts them: hyper-threads, if it schedules these.")
    threads_per_core: Count = key(
        1,
        "CPUs that share a core (ThreadsPerCore): ranks get whole cores, and with hint: nomultithread one CPU of each.",
    )
    directives: dict[DirectiveName, Line | int | bool] = key(
        {}, "Options of sbatch only for the nodes of this group, such as its partition or constraint."
    )

    def enforce_rules(self) -> None:
        """Raise BreachError if the CPUs are not a whole number of cores."""
        super().enforce_rules()
        if self.cpus % self.threads_per_core:
            raise BreachError(
                "threads_per_core", f"is {self.threads_per_core}, and {self.cpus} CPUs are not a whole number of cores"
            )


def enforce_rules_of_groups(nodes: Nodes | Sequence[Nodes]) -> None:
    """Raise BreachError for groups that one job can't use, and for keys that only groups have."""
    if isinstance(nodes, Nodes):
        stated = next((name for name in ("name", "directives") if name in nodes.stated), None)
        if stated is not None:
            raise BreachError("nodes", f"has {stated}, and is not a list of groups", f"take {stated} out")
        return
    if len(nodes) < 2:
        raise BreachError("nodes", f"lists {len(nodes)} group, and there are at least 2", _ALL_ALIKE)
    names = [group.name for group in nodes]
    if None in names or len(set(names)) < len(names):
        shown = ", ".join(name or "(no name)" for name in names)
        raise BreachError("nodes", f"has groups called {shown}", "give each group a different name")
    kinds = {group.accelerator: group.name for group in nodes}
    if len(kinds) > 1:
        shown = " and ".join(f"{name} has accelerator: {kind}" for kind, name in kinds.items())
        raise BreachError("nodes", f"differ in what a rank trains on: {shown}", "give all groups the same")
    if "ipu" in kinds:
        raise BreachError("nodes", "have IPUs, and poprun starts the same number of instances on each host", _ALL_ALIKE)


_ALL_ALIKE = "give the nodes without the dash, as one group of equal nodes"
