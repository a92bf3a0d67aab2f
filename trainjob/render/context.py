"""What a job template may print: every value ready, each with its origin. Templates never compute."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trainjob.cluster.models import PodCluster
from trainjob.render import quoting
from trainjob.render.quoting import Shell
from trainjob.render.record import environment
from trainjob.render.request import Request
from trainjob.render.sourced import Sourced, SourcedShell

_RUNTIME = ('"$python"', "-m", "trainjob.train", '"$run_dir"')


def context(request: Request) -> dict[str, Any]:
    """Return the names a template may use: title, environment, data_dir, prologue, python, launch_options, command."""
    cluster, origin = request.cluster, request.cluster_origin
    return {
        "title": Sourced(f"{request.plan.name} on {request.plan.cluster}", request.origin("name")),
        "environment": list(_environment(request)),
        "data_dir": None if cluster.data_dir is None else SourcedShell(quoting.path(cluster.data_dir), origin),
        "prologue": [SourcedShell(Shell(line), origin) for line in cluster.prologue],
        "python": _python(request),
        "launch_options": list(_launch_options(request)),
        "command": _command(request),
    }


def _environment(request: Request) -> Iterator[tuple[Sourced, Sourced]]:
    for name, value in environment(request).items():
        origin = request.origin(f"env.{name}") if name in request.job.env else request.cluster_origin
        yield Sourced(name, origin), Sourced(value, origin)


def _python(request: Request) -> SourcedShell:
    asked = None if isinstance(request.cluster, PodCluster) else request.cluster.python
    return SourcedShell(quoting.path(asked or "python3"), request.cluster_origin if asked else "default")


def _launch_options(request: Request) -> Iterator[tuple[Shell, object]]:
    cluster, plan = request.cluster, request.plan
    yield Shell("--instances"), Sourced(plan.topology.instances, request.origin("instances"))
    yield Shell("--accelerator"), Sourced(plan.topology.device_word.lower(), request.cluster_origin)
    if request.job.command:
        yield Shell("--working-folder"), Sourced(_working_folder(request), "where the command was given")
    if cluster.network.port:
        yield Shell("--port"), Sourced(cluster.network.port, request.cluster_origin)
    if cluster.network.interface:
        yield Shell("--interface"), Sourced(cluster.network.interface, request.cluster_origin)
    if cluster.secrets_file:
        yield Shell("--secrets-file"), SourcedShell(quoting.path(cluster.secrets_file), request.cluster_origin)


def _working_folder(request: Request) -> str:
    return "code/project" if request.project_folder == "." else f"code/project/{request.project_folder}"


def _command(request: Request) -> list[object]:
    if not request.job.command:
        return [SourcedShell(Shell(word), "the runtime") for word in _RUNTIME]
    return [Sourced(word, request.origin("command")) for word in request.job.command]
