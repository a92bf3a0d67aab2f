"""The names and values of the template of kind slurm."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

from trainjob.contract import quoting, roles
from trainjob.contract.errors import UserError
from trainjob.contract.programs.slurm_options import OPTIONS
from trainjob.contract.quoting import Shell
from trainjob.contract.steps import parse_retry
from trainjob.kinds.poprun import PoprunLine, PoprunOption, option
from trainjob.kinds.slurm import directives
from trainjob.kinds.slurm.directives import of_each_group
from trainjob.kinds.slurm.model import SlurmCluster
from trainjob.render.container import ContainerError
from trainjob.render.context import common, one_interface
from trainjob.render.record import environment
from trainjob.render.request import DirectiveError, Request
from trainjob.render.sourced import Sourced, SourcedShell

# The update that a task begins with. A user's own command need not count updates.
_BEGINNING = "update-00000000"
# These need a daemon or the user's own storage on each host, and can't start containers on other hosts.
_ONE_HOST = ("docker", "podman")
# Docker renumbers the GPUs that it passes to a container from 0, so the variables of the host are wrong inside.
_GPUS = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")
_SPLITS_MOUNTS = ',"\n'
# All attempts of a run share one Slurm job id, and each element of an array has its own.
_OWN_PARTITION = "trainjob_%j"


def context(
    request: Request, entry: str = "slurm", by_hand: str = "in this folder, sbatch job.sbatch"
) -> dict[str, Any]:
    """Return the names of the template. Raises UserError for what Slurm does not support.

    `entry` and `by_hand` are those of `common`.
    """
    cluster, starter, origin = SlurmCluster.of(request.cluster), request.starter, request.cluster_origin
    port, values = cluster.network.port, common(request, entry, by_hand, has_token=starter != "srun")
    parsed = roles.parse(request.job.roles)
    return {
        **values,
        "servers": list(map(operator.or_, values["servers"], _servers(request, cluster))),
        "starter": Sourced(starter, request.origin("engine") if starter == "mpirun" else "every job of this kind"),
        "is_group": starter != "srun",
        "directives": directives.lines(request, cluster),
        "steps": [
            {
                "cpus_per_task": Sourced(directives.cpus_per_task(part, own), origin),
                "cpus": _cpus(part, own, part),
                "srun_options": [
                    *(_placed(part, parsed.main.name, 1) if part.servers else ()),
                    *(_share(part, own) if parsed.shared_gpus else ()),
                    *_srun_options(part, own),
                ],
            }
            for part, own in of_each_group(request, cluster)
        ],
        "node_groups": Sourced(len(cluster.groups), request.cluster_origin) if cluster.has_groups else None,
        "job_ranks": Sourced(request.plan.topology.instances, request.origin("instances")),
        "is_sweep": request.job.sweep is not None,
        "preemption": Sourced(cluster.preemption, request.cluster_key("preemption")),
        "max_attempts": Sourced(request.job.max_attempts, request.origin("max_attempts")),
        "retry": _retry(request, cluster),
        "first_progress": Sourced("" if request.job.command else _BEGINNING, "the runtime"),
        "interface": one_interface(request, "under Slurm ranks", "node", "ib0"),
        "port": None if port is None else Sourced(port, origin),
        "queues_follow_up": Sourced("1", request.cluster_origin) if cluster.queue_follow_up else None,
        "login_environment": Sourced("1", request.cluster_origin) if cluster.login_environment else None,
        "container": None,
        "partition": None,
        "removes_own_partition": False,
        **_STARTERS[starter](request, cluster),
    }


def _servers(request: Request, cluster: SlurmCluster) -> Iterator[dict[str, Any]]:
    """Yield where each server starts: its first node of the job, the CPUs of its task, and srun's options."""
    after_others = request.plan.topology.host_count + 1
    for name, server in request.servers.items():
        topology, options = server.plan.topology, _srun_options(server, cluster)
        first, cpus = after_others, Shell('"$SLURM_CPUS_ON_NODE"')
        if topology.first_shared_device is not None:
            first, options = 1, [*_share(server, cluster), *options]
            cpus = _cpus(request, cluster, server) if topology.devices else cpus
        else:
            after_others += topology.host_count
        yield {"first": first, "cpus": cpus, "srun_options": [*_placed(server, name, first), *options]}


def _placed(request: Request, role: str, first: int) -> list[Sourced | SourcedShell]:
    """Return srun's options for a step by the name of its role, on some nodes of the job, from number `first` on."""
    topology, origin = request.plan.topology, request.hosts_origin
    nodes = Shell(f'--nodelist="$(nodes_of_job {first} {topology.host_count})"')
    return [
        Sourced(f"--job-name={role}", request.origin(f"roles.{role}")),
        Sourced(f"--nodes={topology.host_count}", origin),
        Sourced(f"--ntasks={topology.instances}", request.origin("instances")),
        Sourced(f"--ntasks-per-node={topology.instances_per_host}", request.origin("instances")),
        SourcedShell(nodes, origin),
    ]


def _share(request: Request, cluster: SlurmCluster) -> list[Sourced]:
    """Return srun's options for a step that leaves to others what it does not ask for. Raises DirectiveError.

    One without GPUs holds nothing: it runs on all CPUs that the job has there, as others do.
    """
    topology, origin = request.plan.topology, request.origin("roles")
    if not topology.devices:
        return [Sourced(word, origin) for word in ("--overlap", "--mem=0", "--gres=none")]
    if cluster.request == "none":
        raise DirectiveError(
            "servers with gpus share hosts, and request is none: Slurm does not know which step has which GPUs",
            "set request: gres, or leave gpus out",
        )
    option, value = directives.accelerators(cluster, topology.devices // topology.host_count)
    # Or else the first step would take all memory, and the next one wait for it.
    words = ("--exact", "--mem=0", f"--{option}={value}")
    return [Sourced(word, origin) for word in words]


def _cpus(request: Request, cluster: SlurmCluster, part: Request) -> Shell:
    """Return the CPUs of a task of `part`: that of the job's tasks, or if roles share hosts, for each of its GPUs."""
    each = f"${{SLURM_CPUS_PER_TASK:-{directives.cpus_per_task(request, cluster)}}}"
    if not roles.parse(request.job.roles).shared_gpus:
        return Shell(f'"{each}"')
    return Shell(f'"$(({each} * {part.plan.topology.devices_per_instance}))"')


def _retry(request: Request, cluster: SlurmCluster) -> dict[str, Any] | None:
    """Return how many attempts may ask for more, and the options with which they do; None without any."""
    if not request.job.retry:
        return None
    retry = parse_retry(request.job.retry)
    larger = [] if retry.mem is None else directives.larger_memory(request, cluster, retry.mem, retry.attempts)
    longer = [f"--time={limit}" for limit in request.times.longer(retry)]
    return {
        "attempts": Sourced(retry.attempts, request.origin("retry.attempts")),
        "mem": [Sourced(option, request.origin("retry.mem")) for option in larger],
        "time": [Sourced(option, request.origin("retry.time")) for option in longer],
    }


def _srun_options(request: Request, cluster: SlurmCluster) -> list[Sourced | SourcedShell]:
    """Return the site's options of srun, one word each. Raises UserError for those that the job script decides."""
    for name in cluster.srun:
        # The job script sets some, and others would take the ranks' output or placement from the launcher.
        if name in OPTIONS and OPTIONS[name].step in ("decided", "refused"):
            raise UserError(
                f"srun.{name} is decided by the job script, as the plan and the launcher need it", "take it out"
            )
    words = {name: f"--{name}" if value is True else f"--{name}={value}" for name, value in cluster.srun.items()}
    options: list[Sourced | SourcedShell] = [*_hint(request, cluster)]
    options += [
        Sourced(word, request.cluster_origin) for name, word in words.items() if cluster.srun[name] is not False
    ]
    if request.job.least_hosts is not None:
        # Without the number of ranks on the hosts that Slurm gives, the default depends on the release.
        per_node = request.plan.topology.instances_per_host
        ranks = Shell(f'--ntasks="$((SLURM_JOB_NUM_NODES * {per_node}))"')
        options.append(SourcedShell(ranks, request.hosts_origin))
    return options


def _hint(request: Request, cluster: SlurmCluster) -> list[Sourced]:
    """Return the job's hint for srun, because srun does not inherit it from sbatch. Raises UserError."""
    hint = cluster.directives.get("hint")
    other = next((name for name in _INSTEAD_OF_HINT if name in cluster.srun), None)
    # If the cluster file has both, its hint is for sbatch only.
    if not hint or "hint" in cluster.srun or (other and not request.job.hint):
        return []
    if other is not None:
        raise UserError(
            f"hint is {hint}, and srun.{other} is {cluster.srun[other]}: srun takes one of the two",
            f"take srun.{other} out, or leave the hint to srun: too",
        )
    return [Sourced(f"--hint={hint}", directives.origin(request, "hint"))]


# Options that srun does not accept together with a hint.
_INSTEAD_OF_HINT = ("cpu-bind", "threads-per-core", "ntasks-per-core")


def _srun(request: Request, cluster: SlurmCluster) -> dict[str, Any]:
    """Return the names for ranks that srun starts: those of their container, if any. Raises ContainerError."""
    settings, origin = cluster.container, request.cluster_origin
    if settings.runtime == "none" or settings.image is None:
        return {}
    hosts = request.plan.topology.host_count
    if settings.runtime in ("pyxis", "ce") and cluster.has_groups:
        raise ContainerError(
            f"container.runtime is {settings.runtime} and nodes is a list of groups: srun would start a container for "
            "one of them",
            "Take runtime: apptainer, or one group of nodes",
        )
    if settings.runtime in _ONE_HOST and hosts > 1:
        raise ContainerError(
            f"container.runtime is {settings.runtime} and the job takes {hosts} hosts: {settings.runtime} serves one",
            "Take runtime: apptainer or pyxis, or --hosts 1",
        )
    names = [*environment(request), *([] if settings.runtime == "docker" else _GPUS)]
    return {
        "container": Sourced(settings.runtime, origin),
        "image": SourcedShell(quoting.path(settings.image), origin),
        "mounts": list(_mounts(request, cluster)),
        "container_options": [Sourced(word, origin) for word in settings.options],
        "handed_in": [Shell(name) for name in names],
        "accelerator": Sourced(request.plan.topology.device.lower(), origin),
    }


def _mounts(request: Request, cluster: SlurmCluster) -> Iterator[SourcedShell]:
    paths = {f"container.mounts {path}": path for path in cluster.container.mounts}
    if cluster.secrets_file:
        paths["secrets_file"] = cluster.secrets_file
    runtime = cluster.container.runtime
    for key, path in paths.items():
        source, colon, target = path.partition(":/")
        signs = _SPLITS_MOUNTS + (":" if colon else "") + {"pyxis": ":", "shifter": ":;"}.get(runtime, "")
        sign = next((sign for sign in signs if sign in source + target), None)
        if sign is not None:
            raise ContainerError(f"{key} is {path}, and {runtime} splits a mount at {sign!r}", "give a path without it")
        yield request.path(key, path)


def _mpirun(request: Request, cluster: SlurmCluster) -> dict[str, Any]:
    """Return the names for ranks that mpirun starts: one mpirun in the job script, over all nodes of the job."""
    if cluster.container.runtime != "none":
        raise ContainerError(
            f"engine {request.plan.engine} starts its ranks by mpirun, which can't start each in its own container, "
            f"and container.runtime is {cluster.container.runtime}",
            "give --engine ddp",
        )
    topology, interface = request.plan.topology, cluster.network.interface
    per_node = Sourced(f"ppr:{topology.instances_per_host}:node", request.hosts_origin)
    return {
        "mpirun": [
            (Shell("-np"), Sourced(topology.instances, request.origin("instances"))),
            (Shell("--map-by"), per_node),
        ],
        "mpi_interface": None if interface is None else Sourced(interface, request.cluster_origin),
        "forwarded": [Shell(name) for name in environment(request)],
    }


def _poprun(request: Request, cluster: SlurmCluster) -> dict[str, Any]:
    """Return the names for ranks that poprun starts, perhaps in the job's own partition. Raises ContainerError."""
    if cluster.container.runtime != "none":
        raise ContainerError(
            f"container.runtime is {cluster.container.runtime} and nodes.accelerator is ipu: poprun starts ranks by "
            "the SDK's mpirun, which can't start each in its own container",
            "Take runtime: none, and sdk.venv",
        )
    topology, origin, vipu = request.plan.topology, request.cluster_origin, cluster.vipu
    allocation = partition = None
    if vipu.allocation is not None and not request.job.compile_only:  # a job that only compiles needs no partition
        allocation = SourcedShell(quoting.with_job_id(vipu.allocation), origin)
    if vipu.partition is not None:
        partition = SourcedShell(quoting.with_job_id(vipu.partition), origin)
    elif vipu.allocation is not None:
        partition = SourcedShell(quoting.with_job_id(_OWN_PARTITION), "a partition of the job's own")
    hosts = SourcedShell(Shell(f'"$(hosts_of_job {cluster.poprun.host_list})"'), origin)
    line = PoprunLine(
        request,
        cluster,
        hosts=PoprunOption(Shell("--host"), hosts) if topology.host_count > 1 else None,
        ilds=option("num-ilds", topology.ilds, "64 IPUs to an IPU-Link domain") if (topology.ilds or 1) > 1 else None,
        partition=partition,
        allocation=None,  # the job script makes the partition before it starts poprun
    )
    return {
        **line.context(),
        "allocation": allocation,
        "removes_own_partition": allocation is not None and cluster.vipu.remove_partition is not False,
        "partition_ipus": Sourced(1 << (topology.devices - 1).bit_length(), origin),  # a power of two
        "gcds": topology.ilds or 1,
    }


# Program that starts the ranks -> the names that only its part of the script has.
_STARTERS = {"srun": _srun, "mpirun": _mpirun, "poprun": _poprun}
