"""What a Slurm job prints that has poprun start its ranks, and that may make a partition of its own for them."""

from __future__ import annotations

from typing import Any

from trainjob.cluster.models import SlurmCluster
from trainjob.render import poprun, quoting
from trainjob.render.container import ContainerError
from trainjob.render.request import Request
from trainjob.render.sourced import Sourced, SourcedShell


def context(request: Request, cluster: SlurmCluster) -> dict[str, Any]:
    """Return the names that CONTRIBUTING.md lists for IPUs under Slurm. Raises ContainerError."""
    _refuse_containers(cluster)
    topology, origin = request.plan.topology, request.cluster_origin
    allocation = _allocation(request, cluster)
    return {
        **poprun.of_the_line(request, cluster),
        "container": None,
        "hosts": len(topology.hosts),
        "hosts_as_range": cluster.poprun.host_list == "range",
        "allocation": allocation,
        "minds_partition": allocation is not None and cluster.vipu.remove_partition is not False,
        "partition_ipus": Sourced(_power_of_two(topology.devices), origin),
        "gcds": topology.ilds or 1,
    }


def _refuse_containers(cluster: SlurmCluster) -> None:
    if cluster.container.runtime != "none":
        raise ContainerError(
            f"container.runtime is {cluster.container.runtime} and nodes.accelerator is ipu: poprun starts ranks by "
            "the mpirun of the SDK, which starts none in containers of their own. Take runtime: none, and sdk.venv"
        )


def _allocation(request: Request, cluster: SlurmCluster) -> SourcedShell | None:
    """Return where the job makes its partition; None where it makes none, as when it only compiles."""
    asked = cluster.vipu.allocation
    if asked is None or request.job.compile_only:
        return None
    return SourcedShell(quoting.with_job_id(asked), request.cluster_origin)


def _power_of_two(ipus: int) -> int:
    return 1 << (ipus - 1).bit_length()
