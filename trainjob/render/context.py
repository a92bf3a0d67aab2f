"""What a job template may print: every value ready, each with its origin. Templates never compute."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trainjob.cluster.models import LocalCluster, PodCluster, SlurmCluster, interpreter
from trainjob.plan.engines import needs_mpirun
from trainjob.render import poprun, quoting, slurm
from trainjob.render.container import container
from trainjob.render.directives import starter_of
from trainjob.render.places import place
from trainjob.render.quoting import Shell
from trainjob.render.record import environment
from trainjob.render.request import Request
from trainjob.render.sourced import Sourced, SourcedShell

_PYTHON, _RUN_DIR = Shell('"$TRAINJOB_PYTHON"'), Shell('"$TRAINJOB_RUN_DIR"')


def context(request: Request) -> dict[str, Any]:
    """Return the names a template may use: CONTRIBUTING.md lists them."""
    cluster, origin = request.cluster, request.cluster_origin
    return {
        "kind": cluster.kind,
        "title": Sourced(quoting.one_line(f"{request.plan.name} on {request.plan.cluster}"), request.origin("name")),
        "environment": list(_environment(request)),
        "data_dir": None if cluster.data_dir is None else place(request, "data_dir", cluster.data_dir),
        "prologue": [SourcedShell(Shell(line), origin) for line in cluster.prologue],
        "python": _python(request),
        "mpirun": _mpirun(request),
        "launch_options": list(_launch_options(request)),
        "command": _command(request),
        **(slurm.context(request, cluster) if isinstance(cluster, SlurmCluster) else {}),
        **(_of_this_machine(request, cluster) if isinstance(cluster, LocalCluster) else {}),
        **(poprun.context(request, cluster) if isinstance(cluster, PodCluster) else {}),
    }


def _of_this_machine(request: Request, cluster: LocalCluster) -> dict[str, Any]:
    secrets = None if cluster.secrets_file is None else place(request, "secrets_file", cluster.secrets_file)
    everything = list(_launch_options(request))
    return {
        "container": container(request),
        "secrets_file": secrets,
        # Where ranks meet is settled outside; a secret stays inside, where no `docker inspect` shows it.
        "options_outside": [pair for pair in everything if pair[0] not in _INSIDE],
        "options_inside": [pair for pair in everything if pair[0] in (*_INSIDE, "--accelerator")],
    }


_INSIDE = ("--working-folder", "--secrets-file")


def _environment(request: Request) -> Iterator[tuple[Sourced, Sourced]]:
    for name, value in environment(request).items():
        origin = request.origin(f"env.{name}") if name in request.job.env else request.cluster_origin
        yield Sourced(name, origin), Sourced(value, origin)


def _python(request: Request) -> SourcedShell:
    asked = interpreter(request.cluster)
    if asked is None:
        return SourcedShell(Shell("python3"), "default")
    if "/" not in asked:
        return SourcedShell(quoting.word(asked), request.cluster_origin)
    return place(request, "python", asked)


def _mpirun(request: Request) -> list[tuple[Shell, object]] | None:
    """Return mpirun's options; None where launch.py starts the ranks itself."""
    if not needs_mpirun(request.plan.engine):
        return None
    return [(Shell("-np"), Sourced(request.plan.topology.instances, request.origin("instances")))]


def _launch_options(request: Request) -> Iterator[tuple[Shell, object]]:
    cluster, plan = request.cluster, request.plan
    if isinstance(cluster, LocalCluster) and not needs_mpirun(plan.engine):
        yield Shell("--instances"), Sourced(plan.topology.instances, request.origin("instances"))
    yield Shell("--accelerator"), Sourced(plan.topology.device_word.lower(), request.cluster_origin)
    if request.job.command:
        yield Shell("--working-folder"), Sourced(_working_folder(request), "where the command was given")
    if cluster.network.port and isinstance(cluster, LocalCluster):
        yield Shell("--port"), Sourced(cluster.network.port, request.cluster_origin)
    if cluster.network.interface and "/" not in cluster.network.interface:  # gloo and NCCL know no CIDR
        yield Shell("--interface"), Sourced(cluster.network.interface, request.cluster_origin)
    names = [key.removeprefix("env.") for key in request.swept if key.startswith("env.")]
    if names:
        yield Shell("--environment-of-job"), Sourced(",".join(names), request.origin("sweep"))
    if isinstance(cluster, SlurmCluster) and starter_of(request, cluster) != "srun":
        yield Shell("--token"), Shell('"$TRAINJOB_TOKEN"')
    if cluster.secrets_file:
        yield Shell("--secrets-file"), place(request, "secrets_file", cluster.secrets_file)


def _working_folder(request: Request) -> str:
    return "code/project" if request.project_folder == "." else f"code/project/{request.project_folder}"


def _command(request: Request) -> list[object]:
    if not request.job.command:
        words = (_PYTHON, "-m", *request.runtime, _RUN_DIR)
        return [SourcedShell(quoting.word(word), "the runtime") for word in words]
    return [Sourced(word, request.origin("command")) for word in request.job.command]
