"""The accelerators, CPUs and memory of a cluster's machines, all alike or in groups, and what jobs may use of them."""

from __future__ import annotations

from typing import Literal, NamedTuple

from trainjob.cluster.common import Count, DirectiveName, Line, Number, Word
from trainjob.cluster.strict import BreachError, Strict, key, required

Accelerator = Literal["gpu", "ipu", "cpu"]


class Node(Strict):
    """One of several equal machines."""

    accelerator: Accelerator = key("cpu", "The device that a rank trains on.")
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


class Nodes(Node):
    """The equal nodes of one Slurm partition; or one of several groups, of which a job takes every node."""

    name: Word | None = key(None, "Name of this group. Absent: the nodes are not a list of groups.")
    gres: Word | None = key(None, "Name of the accelerators' GRES, where it is not gpu or ipu: dcu, npu.")
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
        if self.gres is not None and self.accelerator == "cpu":
            raise BreachError("gres", f"is {self.gres}, and accelerator is cpu", "take it out, or set accelerator: gpu")
        if self.cpus % self.threads_per_core:
            raise BreachError(
                "threads_per_core", f"is {self.threads_per_core}, and {self.cpus} CPUs are not a whole number of cores"
            )

    @property
    def gres_name(self) -> str:
        """The name of the accelerators' GRES."""
        return self.gres or self.accelerator


class Capacity(NamedTuple):
    """The hosts and devices that jobs may use. `slots` are the `device_word`s of one host; None if it sets no limit."""

    device_word: str  # "IPU" | "GPU" | "CPU"
    host_word: str
    hosts: int
    most_hosts: int  # hosts one job may have
    slots: int | None
    default_instances: int  # of one host
    ipus: int | None = None  # IPUs that a job may have; None if the cluster has no IPUs
    ilds: int | None = None  # IPU-Link domains, if the cluster file states them
    default_hosts: int = 1  # of a job that names neither hosts nor instances
    least_hosts: int = 1  # hosts one job must have
    cpus_per_slot: int | None = None  # if a host's CPUs set the limit of `slots`
    spreads: bool = False  # instances are spread over hosts instead of filling one host after the other
    groups: tuple[Nodes, ...] = ()  # if hosts differ: a job takes all groups
