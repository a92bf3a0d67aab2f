"""Finished values for the job scripts of all kinds, each with its origin. Templates never compute."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trainjob.cluster.slurm_text import seconds
from trainjob.contract import quoting, steps
from trainjob.contract.errors import UserError
from trainjob.contract.paths import ROLES
from trainjob.contract.quoting import Shell
from trainjob.planning.node_starts import is_per_node
from trainjob.planning.words import quantity
from trainjob.render import library
from trainjob.render.record import environment
from trainjob.render.request import DEFAULT, Request
from trainjob.render.sourced import Sourced, SourcedShell, naming_its_option

_PYTHON, _RUN_DIR = Shell('"$TRAINJOB_PYTHON"'), Shell('"$TRAINJOB_RUN_DIR"')
_LONGEST_COMMAND = 160
OF_STEPS = ("--working-folder", "--secrets-file")
_MARGIN_S = 120  # between the request to checkpoint and the time limit, as under Slurm


def common(request: Request, entry: str, by_hand: str, *, has_token: bool = False) -> dict[str, Any]:
    """Return the names that templates of all kinds may use: CONTRIBUTING.md lists them.

    `entry` is the file of the shell library that the script sources, and `by_hand` how people start the script.
    """
    cluster, job, plan = request.cluster, request.job, request.plan
    shares = _shares(request)
    options = _launch_options(request, shares.get(""), has_token=has_token)
    variables = [
        (
            name,
            value,
            request.cluster_origin if name in cluster.env and name not in job.env else request.origin(f"env.{name}"),
        )
        for name, value in environment(request).items()
    ]
    command = [Sourced(word, request.origin("command")) for word in job.command or ()]
    runtime = (_PYTHON, "-m", *request.runtime, _RUN_DIR)
    ranks = (Shell("-np"), Sourced(plan.topology.instances, request.origin("instances")))
    return {
        "kind": cluster.kind,
        "title": Sourced(quoting.visible(f"{plan.name} on {plan.cluster}"), request.origin("name")),
        "about": list(_about(request, by_hand)),
        "entry": Shell(entry),
        "library": library.digest(),
        "is_group": False,
        "is_task": not job.command,
        "environment": [(Sourced(name, origin), Sourced(value, origin)) for name, value, origin in variables],
        "data_dir": None if cluster.data_dir is None else request.path("data_dir", cluster.data_dir),
        "prologue": [SourcedShell(Shell(line), request.cluster_origin) for line in cluster.prologue],
        "python": _python(request),
        "mpirun": [ranks] if request.starter == "mpirun" else None,  # None: the launcher starts the ranks itself
        "launch_options": options,
        "starter_options": [pair for pair in options if pair[0] == "--grace-s"],
        "once": _once_for_job(request, options),
        "servers": [
            {
                "name": Sourced(name, request.origin(f"roles.{name}")),
                "folder": Shell(f'"$TRAINJOB_RUN_DIR/{ROLES}/{name}"'),
                "launch_options": _launch_options(server, shares.get(name), has_token=has_token),
            }
            for name, server in request.servers.items()
        ],
        "time_limit": _time_limit(request),
        "command": command or [SourcedShell(quoting.word(word), "the runtime") for word in runtime],
    }


def _once_for_job(request: Request, options: list[tuple[Shell, Any]]) -> dict[str, Any] | None:
    """Return what the line has that runs the steps of the job; None without one."""
    if not request.job.once.get(steps.JOB):
        return None
    contained = request.cluster.container.runtime != "none"
    return {
        "python": Shell('"${TRAINJOB_HOST_PYTHON:-python3}"') if contained else _PYTHON,
        "options": [pair for pair in options if pair[0] in OF_STEPS],
        "origin": request.origin(f"once.{steps.JOB}"),
    }


def _time_limit(request: Request) -> dict[str, Sourced] | None:
    """Return the seconds of the time limit and of its margin if the script itself must keep it; None otherwise."""
    limit_s = None if request.job.time_limit is None else seconds(request.job.time_limit)
    if limit_s is None or request.cluster.has_scheduler:
        return None
    origin = request.origin("time_limit")
    return {"seconds": Sourced(limit_s, origin), "margin_s": Sourced(min(_MARGIN_S, limit_s // 2), origin)}


def _about(request: Request, by_hand: str) -> Iterator[SourcedShell]:
    """Yield comments: what the job is, the user's command if there is one, and how to start the job by hand.

    They are finished shell, because comments are not quoted, and contain nothing that could end the line.
    """
    topology, plan = request.plan.topology, request.plan
    sizes = f"{quantity(topology.instances, 'instance')} on {quantity(topology.host_count, 'host')}"
    if plan.batch is not None:
        sizes += f", {quantity(topology.replicas, 'replica')}, global batch {plan.batch.global_batch}"
    yield _comment(f"Job {plan.name} on {plan.cluster}: {sizes}, engine {plan.engine}", request.origin("name"))
    if request.job.command:
        more = ", and further words for each element" if "arguments" in request.swept else ""
        yield _comment(f"Ranks run, as job.json has it{more}: {_shown(request.job.command)}", request.origin("command"))
    for step in steps.parse(request.job.once):
        where = "for the run" if step.scope == steps.JOB else "on each host"
        yield _comment(f"Once {where}, before ranks: {_shown(step.command)}", request.origin(f"once.{step.scope}"))
    yield _comment(f"By hand: {by_hand}", "every job of this kind")


def _shown(command: list[str]) -> str:
    words = " ".join(quoting.word(quoting.visible(word)) for word in command)
    return words if len(words) <= _LONGEST_COMMAND else f"{words[:_LONGEST_COMMAND]}… ({len(words)} characters)"


def _comment(text: str, origin: str) -> SourcedShell:
    return SourcedShell(Shell(f"# {quoting.visible(text)}"), origin)


def _python(request: Request) -> SourcedShell:
    program = request.cluster.interpreter
    if program is None:
        return SourcedShell(Shell("python3"), DEFAULT)
    words = request.cluster.interpreter_words or ((program,) if "/" not in program else ())
    if words:
        return SourcedShell(Shell(" ".join(map(quoting.word, words))), request.cluster_origin)
    return request.path("python", program)


def _shares(request: Request) -> dict[str, Sourced]:
    """Return the share of each server, by its name, and of the ranks ("") on hosts that no scheduler divides for them.

    They are in proportion to their GPUs, as under Slurm: the number of the first, how many, and of how many.
    """
    placed = request.plan.servers.items()
    shared = {name: one for name, one in placed if one.first_shared_device is not None and one.devices}
    if not shared or request.cluster.has_scheduler:
        return {}
    own = request.plan.topology.devices // request.plan.topology.host_count
    parts = {"": (0, own), **{name: (one.first_shared_device, one.devices_per_replica) for name, one in shared.items()}}
    count = sum(size for _, size in parts.values())
    return {name: Sourced(f"{at}+{size}/{count}", request.origin("roles")) for name, (at, size) in parts.items()}


def _launch_options(
    request: Request, share: Sourced | None, *, has_token: bool
) -> list[tuple[Shell, Sourced | SourcedShell]]:
    given = list(_given_to_launch(request, has_token=has_token))
    if share is not None:
        given.append(("--share", share))
    return [(Shell(flag), naming_its_option(flag, value)) for flag, value in given]


def _given_to_launch(request: Request, *, has_token: bool) -> Iterator[tuple[str, Sourced | SourcedShell]]:
    cluster, plan = request.cluster, request.plan
    if request.starter == "launcher":
        yield "--instances", Sourced(plan.topology.instances, request.origin("instances"))
        if not plan.servers and not request.is_server:  # what starts these ends with the script
            yield "--parent", SourcedShell(Shell('"$$"'), "this script")
    yield "--accelerator", Sourced(plan.topology.device.lower(), request.cluster_origin)
    if is_per_node(request.job, plan.topology):
        yield "--ranks-per-node", Sourced(plan.topology.replicas_per_instance, request.origin("instances"))
    if request.job.command:
        below = "" if request.project_folder == "." else f"/{request.project_folder}"
        yield "--working-folder", Sourced(f"code/project{below}", "where the command was given")
    yield from _of_network(request)
    if cluster.binding != "numa" or request.is_server:  # a server has all GPUs of its host
        yield "--binding", Sourced("none" if request.is_server else cluster.binding, request.cluster_origin)
    if "grace_s" in cluster.stated:
        yield "--grace-s", Sourced(cluster.grace_s, request.cluster_origin)
    has_gpus = plan.topology.device.lower() == "gpu"
    if cluster.node_check or (has_gpus and cluster.node_check is None):
        yield "--node-check", Sourced("on", request.cluster_key("node_check"))
    if "usage_every_s" in cluster.stated:
        yield "--usage-every-s", Sourced(cluster.usage_every_s, request.cluster_origin)
    # job.json has the values in which an element differs, and those of a server.
    swept = [key.removeprefix("env.") for key in request.swept if key.startswith("env.")]
    if names := sorted(request.job.env) if request.is_server else swept:
        names_origin = request.origin("command" if request.is_server else "sweep")
        yield "--environment-of-job", Sourced(",".join(names), names_origin)
    if has_token:
        yield "--token", SourcedShell(Shell('"$TRAINJOB_TOKEN"'), "this script")
    if cluster.secrets_file:
        yield "--secrets-file", request.path("secrets_file", cluster.secrets_file)


def _of_network(request: Request) -> Iterator[tuple[str, Sourced]]:
    network, origin = request.cluster.network, request.cluster_origin
    if network.port and request.cluster.trains_here and not request.is_server:
        yield "--port", Sourced(network.port, origin)
    if network.interface and "/" not in network.interface:  # gloo and NCCL know no CIDR
        yield "--interface", Sourced(network.interface, origin)
    if network.data_interface:
        yield "--data-interface", Sourced(network.data_interface, origin)


def one_interface(request: Request, who: str, host: str, example: str) -> Sourced | None:
    """Return the interface at whose address ranks meet, if the file names one. Raises UserError for several of them."""
    name = request.cluster.network.interface
    if name is not None and any(sign in name for sign in "/^=,"):
        raise UserError(
            f"network.interface is {name}, and {who} meet at one interface's address on the first {host}",
            f"give the name of one interface that all {host}s have, as in {example}",
        )
    return None if name is None else Sourced(name, request.cluster_origin)
