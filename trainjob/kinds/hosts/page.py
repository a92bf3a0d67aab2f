"""The names and values of the template of kind hosts: one mpirun over all hosts."""

from __future__ import annotations

from typing import Any

from trainjob.cluster import slurm_text
from trainjob.contract.quoting import Shell
from trainjob.render.container import ContainerError
from trainjob.render.context import common, one_interface
from trainjob.render.record import environment
from trainjob.render.request import Request
from trainjob.render.sourced import Sourced

TEMPLATE, SCRIPT = "jobs/hosts.sh.j2", "job.sh"


def context(request: Request) -> dict[str, Any]:
    """Return the names that CONTRIBUTING.md lists for kind hosts. Raises UserError for what mpirun does not support."""
    cluster = request.cluster
    if cluster.container.runtime != "none":
        raise ContainerError(
            f"container.runtime is {cluster.container.runtime}, and on a cluster of kind hosts mpirun starts the "
            "ranks and can't start each in its own container",
            "take runtime: none",
        )
    topology, origin = request.plan.topology, request.cluster_origin
    names = slurm_text.expand(topology.hosts)
    slots = ",".join(f"{name}:{topology.instances_per_host}" for name in names)
    port = cluster.network.port
    return {
        **common(request, "hosts", "on the host that starts jobs, bash job.sh", has_token=True),
        "container": None,
        "mpirun": [
            (Shell("-np"), Sourced(topology.instances, request.origin("instances"))),
            (Shell("--map-by"), Sourced(f"ppr:{topology.instances_per_host}:node", request.hosts_origin)),
            (Shell("--host"), Sourced(slots, origin)),
        ],
        "first_host": Sourced(names[0], origin) if len(names) > 1 else None,
        "fixed_port": None if port is None else Sourced(port, origin),
        "mpi_interface": one_interface(request, "ranks", "host", "eno1"),
        "forwarded": [Shell(name) for name in environment(request)],
    }
