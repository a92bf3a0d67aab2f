"""The `#SBATCH` lines of a job: the site's options and ours, each with its origin."""

from __future__ import annotations

from collections.abc import Iterator

from trainjob.cluster import array
from trainjob.cluster.models import SlurmCluster, ipu_place
from trainjob.contract.errors import UserError
from trainjob.plan.engines import needs_mpirun
from trainjob.render import quoting
from trainjob.render.request import Request
from trainjob.render.sourced import SourcedShell

Value = str | int | bool
_OURS = "default"
# What the plan and the run directory decide: another value would run another job than was planned.
_DECIDED = {
    "nodes": "--hosts of the job",
    "ntasks": "--instances of the job",
    "ntasks-per-node": "--instances and --hosts of the job",
    "output": "the run directory: logs/scheduler.out",
    "error": "the run directory: logs/scheduler.out",
    "open-mode": "the run directory: logs are appended over attempts",
    "export": "env: of the cluster file or the job",
    "export-file": "env: of the cluster file or the job",
    "chdir": "the run directory, in which sbatch is called",
    "array": "--array of the job",
    "time": "time_limit: of the cluster file, or --time-limit of the job",
    "signal": "time_limit_signal: of the cluster file",
    "wrap": "the job script",
}


class DirectiveError(UserError):
    """A directive of the cluster file that can't stand beside the plan."""


def lines(request: Request, cluster: SlurmCluster) -> list[SourcedShell]:
    """Return the finished `#SBATCH` lines. Raises DirectiveError, or QuotingError for what such a line can't carry."""
    _refuse_decided(cluster)
    site = {name: (value, request.cluster_origin) for name, value in cluster.directives.items()}
    asked = {**{name: (value, origin) for name, value, origin in _ours(request, cluster)}, **site}
    if "no-requeue" in site:
        del asked["requeue"]
    return [
        SourcedShell(line, origin)
        for name, (value, origin) in asked.items()
        if (line := quoting.directive(name, value)) is not None
    ]


def starter_of(request: Request, cluster: SlurmCluster) -> str:
    """Return who starts the ranks: srun, or in the job script poprun or mpirun."""
    if ipu_place(cluster) is not None:
        return "poprun"
    return "mpirun" if needs_mpirun(request.plan.engine) else "srun"


def cpus_per_task(cluster: SlurmCluster, instances_per_host: int) -> int:
    """Return one rank's share of a node's CPUs, at least 1."""
    asked = cluster.directives.get("cpus-per-task")
    if isinstance(asked, int) and asked > 0:
        return int(asked)
    return max(1, cluster.nodes.cpus // instances_per_host)


def _ours(request: Request, cluster: SlurmCluster) -> Iterator[tuple[str, Value, str]]:
    topology = request.plan.topology
    yield "job-name", request.plan.name, request.origin("name")
    yield "nodes", len(topology.hosts), request.origin("hosts")
    yield "ntasks-per-node", topology.instances_per_host, request.origin("instances")
    yield "cpus-per-task", cpus_per_task(cluster, topology.instances_per_host), request.cluster_origin
    yield from _accelerators(request, cluster)
    time_limit = request.job.time_limit or cluster.time_limit
    if time_limit is not None:
        yield "time", time_limit, request.origin("time_limit") if request.job.time_limit else request.cluster_origin
    if request.job.array is not None:
        yield "array", array.parse(request.job.array).text, request.origin("array")
    yield "signal", _signal(request, cluster), request.cluster_origin
    yield "requeue", True, _OURS
    yield "open-mode", "append", _OURS
    yield "output", "logs/scheduler.out", _OURS
    yield "export", "NONE", _OURS


def _signal(request: Request, cluster: SlurmCluster) -> str:
    wanted = cluster.time_limit_signal
    # Where the job script starts the ranks, the steps are none of ours, if there are any.
    to_batch = wanted.to == "batch" or starter_of(request, cluster) != "srun"
    return f"{'B:' if to_batch else ''}USR1@{wanted.margin_s}"


def _accelerators(request: Request, cluster: SlurmCluster) -> Iterator[tuple[str, Value, str]]:
    topology, kind = request.plan.topology, cluster.nodes.accelerator
    if kind == "cpu" or cluster.request == "none":
        return
    each = topology.devices // len(topology.hosts)
    typed = f"{cluster.nodes.type}:{each}" if cluster.nodes.type else str(each)
    option, value = {
        "gres": ("gres", f"{kind}:{typed}"),
        "gpus-per-node": ("gpus-per-node", typed),
        "ipus": ("ipus", str(topology.devices)),
    }[cluster.request]
    if option in cluster.directives:
        raise DirectiveError(
            f"directives.{option} and request: {cluster.request} both ask for accelerators: take the directive out, "
            "or set request: none"
        )
    yield option, value, request.cluster_origin


def _refuse_decided(cluster: SlurmCluster) -> None:
    for name in cluster.directives:
        if name in _DECIDED:
            raise DirectiveError(f"directives.{name} is decided elsewhere ({_DECIDED[name]}): take it out")
