"""The `#SBATCH` lines of a job: the site's options and ours, each with its origin."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator

from trainjob.cluster import slurm_text
from trainjob.cluster.base import OF_SETTINGS
from trainjob.cluster.common import MEMORY_OPTIONS
from trainjob.contract import quoting
from trainjob.contract.errors import UserError
from trainjob.contract.programs import slurm_options
from trainjob.contract.quoting import Shell
from trainjob.contract.roles import parse
from trainjob.kinds.slurm.model import SlurmCluster
from trainjob.planning.limits import growing
from trainjob.render.record import environment
from trainjob.render.request import MARGIN, DirectiveError, Request
from trainjob.render.sourced import SourcedShell

Value = str | int | bool
_OURS = "every job of this kind"
_SIZE = re.compile(r"([0-9]+)([MGT]?)")


def lines(request: Request, cluster: SlurmCluster) -> list[SourcedShell]:
    """Return the finished `#SBATCH` lines. Raises DirectiveError, and QuotingError if a line can't hold a value."""
    first, *others = of_each_group(request, cluster)
    hetjob = SourcedShell(Shell("#SBATCH hetjob"), request.cluster_origin)
    return [*_of_one(*first), *(line for group in others for line in (hetjob, *_of_one(*group, is_first=False)))]


# With several groups of nodes, only the first group has these options, because the job script runs there.
_OF_THE_SCRIPT = ("open-mode", "output", "export")


def _of_one(request: Request, cluster: SlurmCluster, *, is_first: bool = True) -> list[SourcedShell]:
    """Return the lines for one group of nodes, or for all nodes if there are no groups."""
    for name in cluster.directives:
        _refuse_unfit(name, cluster)
    # cpus-per-task says it in full: sbatch takes only one of the two.
    kept = {name: value for name, value in cluster.directives.items() if name != "cpus-per-gpu"}
    site = {name: (value, origin(request, name)) for name, value in kept.items()}
    options = {**{name: (value, stated) for name, value, stated in _ours(request, cluster)}, **site}
    if "no-requeue" in options:
        options.pop("requeue", None)
    return [
        SourcedShell(line, stated)
        for name, (value, stated) in options.items()
        if (is_first or name not in _OF_THE_SCRIPT) and (line := quoting.directive(name, value)) is not None
    ]


def origin(request: Request, name: str) -> str:
    """Return where the directive called `name` was stated."""
    setting = OF_SETTINGS.get(name)
    if setting is not None and getattr(request.job, setting) is not None:
        return request.origin(setting)
    return request.origin(f"directives.{name}") if name in request.job.directives else request.cluster_origin


def _ours(request: Request, cluster: SlurmCluster) -> Iterator[tuple[str, Value, str]]:
    yield "job-name", request.plan.name, request.origin("name")
    least, most = request.job.least_hosts, request.plan.host_count
    yield "nodes", most if least in (None, most) else f"{least}-{most}", request.hosts_origin
    # With --ntasks-per-node=1, its default, Slurm 22.05 gives a range the fewest nodes even if more are free.
    tasks = _tasks_per_host(request)
    if tasks > 1 or request.job.least_hosts is None:
        yield "ntasks-per-node", tasks, request.origin("instances")
    yield "cpus-per-task", cpus_per_task(request, cluster), request.cluster_origin
    yield from _memory(request, cluster)
    yield from _accelerators(request, cluster)
    if request.times.limit is not None:
        yield (
            "time",
            request.times.limit,
            request.origin("time_limit") if request.job.time_limit else request.cluster_origin,
        )
    if request.job.array is not None:
        yield "array", slurm_text.parse_array(request.job.array).text, request.origin("array")
    # If mpirun or poprun starts the ranks, Slurm's steps are theirs, so the signal goes to the job script.
    to_batch = cluster.time_limit_signal.to == "batch" or request.starter != "srun"
    signal = f"{'B:' if to_batch else ''}USR1@{cluster.time_limit_signal.margin_s}"
    yield "signal", signal, request.origins.get(MARGIN) or request.cluster_key("time_limit_signal")
    yield "no-requeue" if cluster.holds_nodes else "requeue", True, _OURS
    # Otherwise sbatch passes the login node's limits to the job, and srun passes them to the ranks.
    yield "propagate", "NONE", _OURS
    yield "open-mode", "append", _OURS
    yield "output", "logs/scheduler.out", _OURS
    yield "export", "NONE", _OURS


def cpus_per_task(request: Request, cluster: SlurmCluster) -> int:
    """Return the CPUs of one task for which the job asks."""
    shared, topology = parse(request.job.roles).shared_gpus, request.plan.topology
    return cluster.cpus_per_task(_tasks_per_host(request), 1 if shared else topology.devices_per_instance)


def _tasks_per_host(request: Request) -> int:
    """Return the tasks for which the job asks on each host: its ranks, or if servers share it, one for each GPU."""
    shared, topology = parse(request.job.roles).shared_gpus, request.plan.topology
    return topology.devices // topology.host_count + shared if shared else topology.instances_per_host


def _memory(request: Request, cluster: SlurmCluster) -> Iterator[tuple[str, Value, str]]:
    """Yield the memory that the job takes of each node. Without it Slurm gives the site's default for each CPU."""
    if not MEMORY_OPTIONS.isdisjoint(cluster.directives):
        return
    nodes, ranks = cluster.node, _tasks_per_host(request)
    if cluster.directives.get("exclusive") is True:
        yield "mem", 0, origin(request, "exclusive")  # all of the node's memory
    elif nodes.memory_gb is not None:
        cpus = min(nodes.cpus, cpus_per_task(request, cluster) * ranks * cluster.threads_left_idle)
        share_mb = nodes.memory_gb * 1024 * cpus // nodes.cpus
        yield "mem", f"{share_mb // 1024}G" if share_mb % 1024 == 0 else f"{share_mb}M", request.cluster_origin


def memory_options(request: Request, cluster: SlurmCluster) -> dict[str, int]:
    """Return the options that ask for memory, each with how many times what it states makes the memory of a node."""
    topology = request.plan.topology
    return {
        "mem": 1,
        "mem-per-cpu": cpus_per_task(request, cluster) * _tasks_per_host(request),
        "mem-per-gpu": max(1, topology.devices // topology.host_count + parse(request.job.roles).shared_gpus),
    }


def larger_memory(request: Request, cluster: SlurmCluster, percent: int, attempts: int) -> list[str]:
    """Return the options that ask for more memory once, twice and so on, at most for all of a node.

    Raises DirectiveError if the job already asks for all, or nobody says for how much.
    """
    options = {**{name: value for name, value, _ in _memory(request, cluster)}, **cluster.directives}
    parts = memory_options(request, cluster)
    name = next((name for name in options if name in parts), None)
    match = None if name is None else _SIZE.fullmatch(str(options[name]))
    if name is None or match is None:
        stated = "the job states no memory" if name is None else f"directives.{name} is {options[name]}"
        raise DirectiveError(f"retry has mem, and {stated}", "give directives.mem, or nodes.memory_gb")
    size_mb = int(match[1]) * 1024 ** ("MGT".index(match[2] or "M"))
    most_mb = None if cluster.node.memory_gb is None else cluster.node.memory_gb * 1024 // parts[name]
    grown = growing(size_mb, percent, attempts, most_mb)
    if size_mb == 0 or not grown:
        has = "all memory of its nodes" if size_mb == 0 else f"{options[name]} of the {most_mb} MB"
        raise DirectiveError(f"retry has mem, and the job has {has} already ({name})", "take mem out of retry")
    return [f"--{name}={value}M" for value in grown]


def _accelerators(request: Request, cluster: SlurmCluster) -> Iterator[tuple[str, Value, str]]:
    topology, kind = request.plan.topology, cluster.node.accelerator
    if kind == "cpu" or cluster.request == "none":
        return
    each = topology.devices // topology.host_count + parse(request.job.roles).shared_gpus
    option, value = accelerators(cluster, each, topology.devices)
    if option in cluster.directives:
        raise DirectiveError(
            f"directives.{option} and request: {cluster.request} both request accelerators",
            "take the directive out, or set request: none",
        )
    yield option, value, request.cluster_origin


def accelerators(cluster: SlurmCluster, each: int, ipus: int = 0) -> tuple[str, str]:
    """Return the option that asks for so many accelerators of each node, and its value; `ipus` are those of the job."""
    typed = f"{cluster.node.type}:{each}" if cluster.node.type else str(each)
    return {
        "gres": ("gres", f"{cluster.node.gres_name}:{typed}"),
        "gpus-per-node": ("gpus-per-node", typed),
        "ipus": ("ipus", str(ipus)),
    }[cluster.request]


def _refuse_unfit(name: str, cluster: SlurmCluster) -> None:
    row = slurm_options.OPTIONS.get(name)
    if row is not None and row.directive == "plan":
        raise DirectiveError(f"directives.{name} is decided elsewhere ({slurm_options.STATED_BY[name]})", "take it out")
    if row is not None and row.directive == "never":
        raise DirectiveError(
            f"directives.{name} would keep sbatch from submitting the job and giving its id", "take it out"
        )
    known = slurm_options.of_program("sbatch")
    if name in known:
        return
    # sbatch accepts any unique prefix of a name, so a short name could be an option that is decided elsewhere.
    whole = sorted(option for option in known if option.startswith(name))
    if whole:
        raise DirectiveError(
            f"directives.{name} abbreviates {' and '.join(whole)}, and options are given by their full names",
            f"write {' or '.join(whole)}",
        )
    refused = slurm_options.refusal(name, known=cluster.plugin_options)
    if refused is not None:
        text, better = refused
        raise DirectiveError(
            f"directives.{name}: {text}",
            f"{f'did you mean {better}? ' if better else 'take it out; '}if a plugin of this site adds it, "
            f"set plugin_options: [{name}] in the cluster file",
        )


# -- a job on several groups of nodes -------------------------------------------------------------------------------


def of_each_group(request: Request, cluster: SlurmCluster) -> list[tuple[Request, SlurmCluster]]:
    """Return the request and cluster of each group; the unchanged pair if the cluster has no groups.

    Raises UserError for an environment that sbatch would change.
    """
    if not cluster.has_groups:
        return [(request, cluster)]
    for name, value in environment(request).items():
        if "\n\n" in value:
            raise UserError(
                f"env {name} holds an empty line, and nodes is a list of groups: sbatch would drop that line",
                "take the empty line out, or take a cluster file with one group",
            )
    return list(_parts(request, cluster))


def _parts(request: Request, cluster: SlurmCluster) -> Iterator[tuple[Request, SlurmCluster]]:
    topology, names = request.plan.topology, slurm_text.expand(request.plan.topology.hosts)
    for group, placed in zip(cluster.groups, topology.groups, strict=True):
        own, instances = cluster.of_group(group), placed.hosts * placed.instances_per_host
        part = dataclasses.replace(
            topology,
            hosts=slurm_text.compress(names[: placed.hosts]),
            host_count=placed.hosts,
            instances=instances,
            instances_per_host=placed.instances_per_host,
            replicas=instances * topology.replicas_per_instance,
            groups=[],
        )
        names = names[placed.hosts :]
        # A group's own directives override those of the job.
        others = {name: value for name, value in request.job.directives.items() if name not in group.directives}
        plan, job = dataclasses.replace(request.plan, topology=part), request.job.changed(directives=others)
        yield dataclasses.replace(request, cluster=own, plan=plan, job=job), own
