"""Kind hosts: machines without a scheduler that share a folder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from trainjob.cluster import slurm_text
from trainjob.cluster.base import Cluster, NamedHosts
from trainjob.cluster.common import Line
from trainjob.cluster.nodes import Capacity, Node
from trainjob.cluster.strict import BreachError, key, required
from trainjob.contract import roles
from trainjob.contract.quoting import Shell

if TYPE_CHECKING:
    from trainjob.render.request import Request
    from trainjob.render.sourced import Sourced

TEMPLATE, SCRIPT = "jobs/hosts.sh.j2", "job.sh"


class HostsCluster(NamedHosts):
    """Machines without a scheduler that share a folder, reached over ssh."""

    kind: Literal["hosts"] = required("hosts: machines without a scheduler that share a folder.")
    nodes: Node = key(Node(), "The accelerators, CPUs and memory of each host. Absent: CPUs.")
    python: Line | None = key(
        None, "Interpreter that has torch, at the same path on every host. Absent: python3 of the PATH."
    )

    draft = "hosts-gpu"

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
    def host_node(self) -> Node:
        """Each of the hosts."""
        return self.nodes

    @property
    def interpreter(self) -> str | None:
        """The interpreter that the file names for tasks."""
        return self.python


MODEL: type[Cluster] = HostsCluster


def context(request: Request) -> dict[str, Any]:
    """Return the names that CONTRIBUTING.md lists for kind hosts. Raises UserError for what mpirun does not support."""
    from trainjob.render.container import ContainerError
    from trainjob.render.context import common, one_interface
    from trainjob.render.record import environment
    from trainjob.render.sourced import Sourced

    cluster = request.cluster
    if cluster.container.runtime != "none":
        raise ContainerError(
            f"container.runtime is {cluster.container.runtime}, and on a cluster of kind hosts mpirun starts the "
            "ranks and can't start each in its own container",
            "take runtime: none",
        )
    topology, origin = request.plan.topology, request.cluster_origin
    names = slurm_text.expand(topology.hosts)
    port = cluster.network.port
    values = common(request, "hosts", "on the host that starts jobs, bash job.sh", has_token=True)
    for role, server in zip(values["servers"], request.servers.values(), strict=True):
        first = slurm_text.expand(server.plan.topology.hosts)[0]
        role.update(mpirun=_mpirun(server), host=Sourced(first, origin))
    return {
        **values,
        "container": None,
        "mpirun": _mpirun(request),
        "first_host": Sourced(names[0], origin) if len(names) > 1 else None,
        "fixed_port": None if port is None else Sourced(port, origin),
        "mpi_interface": one_interface(request, "ranks", "host", "eno1"),
        "forwarded": [Shell(name) for name in (*environment(request), *map(roles.variable, request.servers))],
    }


def _mpirun(request: Request) -> list[tuple[Shell, Sourced]]:
    from trainjob.render.sourced import Sourced

    topology = request.plan.topology
    slots = ",".join(f"{name}:{topology.instances_per_host}" for name in slurm_text.expand(topology.hosts))
    return [
        (Shell("-np"), Sourced(topology.instances, request.origin("instances"))),
        (Shell("--map-by"), Sourced(f"ppr:{topology.instances_per_host}:node", request.hosts_origin)),
        (Shell("--host"), Sourced(slots, request.cluster_origin)),
    ]
