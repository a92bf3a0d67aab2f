"""The names and values of the template of a run inside an allocation."""

from __future__ import annotations

from typing import Any

from trainjob.contract.errors import UserError
from trainjob.contract.quoting import Shell
from trainjob.kinds.slurm import page
from trainjob.render.request import Request
from trainjob.render.sourced import Sourced, SourcedShell

_OURS = "every run inside an allocation"
_BY_HAND = "in this folder, srun --jobid=JOB --overlap --nodes=1 --ntasks=1 --mem=0 bash job.sh"


def context(request: Request) -> dict[str, Any]:
    """Return the names of the template: those of a job of its own, but for what a step is told by options of srun."""
    if request.starter != "srun":
        raise UserError(
            f"engine {request.plan.engine} starts its ranks by {request.starter}, and ranks inside an allocation are a "
            "step of srun's",
            "give --engine ddp, or --in none for the queue",
        )
    if request.servers:
        raise UserError(
            f"the job has servers ({', '.join(request.servers)}), and a run inside an allocation can't have any",
            "give --in none for the queue",
        )
    if request.job.least_hosts is not None:
        raise UserError(
            "a range of hosts is for Slurm to choose from, and an allocation has its nodes already",
            "give one number of --hosts, or --in none for the queue",
        )
    topology, names = request.plan.topology, page.context(request, "allocation", _BY_HAND)
    step = names["steps"][0]
    placed = [
        *(Sourced(word, _OURS) for word in ("--overlap", "--mem=0")),
        Sourced(f"--nodes={topology.host_count}", request.hosts_origin),
        Sourced(f"--ntasks-per-node={topology.instances_per_host}", request.origin("instances")),
        SourcedShell(Shell('--nodelist="$SLURM_JOB_NODELIST"'), _OURS),
        # That of the script's step: both are found by it.
        SourcedShell(Shell('--job-name="$SLURM_JOB_NAME"'), _OURS),
    ]
    return {
        **names,
        "directives": [],
        "max_attempts": Sourced(1, _OURS),
        "queues_follow_up": None,
        "hosts": Sourced(topology.host_count, request.hosts_origin),
        "ranks_per_host": Sourced(topology.instances_per_host, request.origin("instances")),
        "cpus_per_rank": step["cpus_per_task"],
        "steps": [{**step, "srun_options": [*placed, *step["srun_options"]]}],
    }
