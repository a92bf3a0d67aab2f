"""What a Slurm job prints whose ranks meet through MPI: one mpirun in the job script, over all nodes of the job."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trainjob.cluster.models import SlurmCluster
from trainjob.contract.environment import ATTEMPT, MASTER_ADDR, MASTER_PORT, REDIRECTS
from trainjob.render.container import ContainerError
from trainjob.render.poprun import OF_SLURM
from trainjob.render.quoting import Shell
from trainjob.render.record import environment
from trainjob.render.request import Request
from trainjob.render.sourced import Sourced

# What a rank on another node needs of the script, where mpirun gets there by ssh; by srun it has all of it.
FORWARDED = (
    "PATH",
    "LD_LIBRARY_PATH",
    "PYTHONPATH",
    "VIRTUAL_ENV",
    MASTER_ADDR,
    MASTER_PORT,
    ATTEMPT,
    *OF_SLURM,
    *REDIRECTS,
)


def context(request: Request, cluster: SlurmCluster) -> dict[str, Any]:
    """Return the names that CONTRIBUTING.md lists for engines that need mpirun. Raises ContainerError."""
    _refuse_containers(request, cluster)
    interface = cluster.network.interface
    return {
        "container": None,
        "allocation": None,
        "partition": None,
        "minds_partition": False,
        "mpirun": list(_options(request)),
        "mpi_interface": None if interface is None else Sourced(interface, request.cluster_origin),
        "forwarded": [Shell(name) for name in dict.fromkeys((*FORWARDED, *environment(request)))],
    }


def _options(request: Request) -> Iterator[tuple[Shell, Sourced]]:
    topology = request.plan.topology
    yield Shell("-np"), Sourced(topology.instances, request.origin("instances"))
    yield Shell("--map-by"), Sourced(f"ppr:{topology.instances_per_host}:node", request.origin("hosts"))


def _refuse_containers(request: Request, cluster: SlurmCluster) -> None:
    if cluster.container.runtime != "none":
        raise ContainerError(
            f"engine {request.plan.engine} starts its ranks by mpirun, which starts none in containers of their own, "
            f"and container.runtime is {cluster.container.runtime}: give --engine ddp"
        )
