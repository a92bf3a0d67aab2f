"""What the templates of a Slurm job may print, beside what all templates may."""

from __future__ import annotations

from typing import Any

from trainjob.cluster.models import SlurmCluster
from trainjob.contract.environment import REDIRECTS
from trainjob.contract.errors import UserError
from trainjob.render import directives, slurm_container, slurm_mpirun, slurm_poprun
from trainjob.render.directives import starter_of
from trainjob.render.request import Request
from trainjob.render.sourced import Sourced

# The update that a task begins with; a command of the user's own may count nothing.
_BEGINNING = "update-00000000"
# Who starts the ranks -> what its part of the script prints.
_STARTERS = {"srun": slurm_container.context, "poprun": slurm_poprun.context, "mpirun": slurm_mpirun.context}


def context(request: Request, cluster: SlurmCluster) -> dict[str, Any]:
    """Return the names that CONTRIBUTING.md lists for kind slurm. Raises UserError for what Slurm can't be asked."""
    origin, starter = request.cluster_origin, starter_of(request, cluster)
    cpus = directives.cpus_per_task(cluster, request.plan.topology.instances_per_host)
    return {
        **_STARTERS[starter](request, cluster),
        "starter": starter,
        "directives": directives.lines(request, cluster),
        "cpus_per_task": Sourced(cpus, origin),
        "redirects": list(REDIRECTS),
        "is_sweep": request.job.sweep is not None,
        # srun takes a word ":" for its own, wherever it stands.
        "command_of_job": "arguments" in request.swept or ":" in (request.job.command or ()),
        "preemption": Sourced(cluster.preemption, origin),
        "max_attempts": Sourced(request.job.max_attempts, request.origin("max_attempts")),
        "first_progress": Sourced("" if request.job.command else _BEGINNING, "the runtime"),
        "interface": Sourced(_interface(cluster), origin if cluster.network.interface else "default"),
        "port": Sourced(cluster.network.port or 0, origin if cluster.network.port else "default"),
    }


def _interface(cluster: SlurmCluster) -> str:
    asked = cluster.network.interface or ""
    if any(sign in asked for sign in "/^=,"):
        raise UserError(
            f"network.interface is {asked}, and under Slurm ranks meet at one interface's address on the first node: "
            "give the name of one interface that all nodes have, as in ib0"
        )
    return asked
