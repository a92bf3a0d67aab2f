"""The cluster file of machines without a scheduler."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from trainjob.cluster.base import NamedHosts
from trainjob.cluster.common import Line
from trainjob.cluster.nodes import Capacity, Node
from trainjob.cluster.strict import BreachError, key, required


class HostsCluster(NamedHosts):
    """Machines without a scheduler that share a folder, reached over ssh."""

    kind: Literal["hosts"] = required("hosts: machines without a scheduler that share a folder.")
    nodes: Node = key(Node(), "The accelerators, CPUs and memory of each host. Absent: CPUs.")
    python: Line | None = key(
        None, "Interpreter that has torch, at the same path on every host. Absent: python3 of the PATH."
    )

    def enforce_rules(self) -> None:
        """Raise BreachError for hosts that are neither named nor counted, and for IPUs."""
        super().enforce_rules()
        if self.nodes.accelerator == "ipu":
            raise BreachError("nodes", "have IPUs", "hosts with IPUs are of kind ipu-pod")

    @property
    def capacity(self) -> Capacity:
        """All hosts of the file."""
        hosts, gpus = self.number_of_hosts, self.nodes.accelerators
        if gpus:
            # GPUs on one host exchange gradients faster than GPUs on two, so jobs fill one host before the next.
            return Capacity("GPU", "host", hosts, hosts, gpus, gpus, default_hosts=hosts)
        # On CPUs one instance takes a whole host.
        return Capacity("CPU", "host", hosts, hosts, self.nodes.cpus, 1, default_hosts=hosts, spreads=True)

    @property
    def needs(self) -> Mapping[str, object]:
        """The value of each key path that `submit` needs."""
        return {"hosts": self.hosts, "runs_dir": self.runs_dir}

    @property
    def accelerators_per_host(self) -> int:
        """The accelerators of each host."""
        return self.nodes.accelerators

    @property
    def accelerator_type(self) -> str | None:
        """The name of the type of accelerator; None if the cluster file does not say."""
        return self.nodes.type

    @property
    def cpus_per_host(self) -> int | None:
        """The CPUs of each host."""
        return self.nodes.cpus

    @property
    def memory_gb_per_host(self) -> int | None:
        """The memory of each host."""
        return self.nodes.memory_gb

    @property
    def interpreter(self) -> str | None:
        """The interpreter that the file names for tasks."""
        return self.python
