"""Starts the ranks of one host and stays until all have ended. This is the one way in which ranks start.

    python -m trainjob.launch --launcher local --instances 2 RUN_DIR -- python train.py

Under `local` it starts every rank itself; under srun and mpirun it is started once per rank, and starts that one.
Standard library only, no torch: a rank starts in milliseconds.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Callable, Dict, List, Optional, Sequence, Tuple

from trainjob.contract import attempts, environment, exits, job, secrets
from trainjob.contract.environment import Ranking
from trainjob.contract.errors import UserError
from trainjob.contract.files import read_word, write_atomically
from trainjob.contract.paths import RunPaths
from trainjob.contract.runtime_settings import RuntimeSettings
from trainjob.contract.usage import EVERY_S
from trainjob.launch import binding, host, node_check, observe, processes, ranks, roll_call
from trainjob.launch.guard import GRACE_S, guarded
from trainjob.launch.meeting import Work
from trainjob.launch.node_check import Need
from trainjob.launch.observe import Orders
from trainjob.launch.stacks import Stacks
from trainjob.launch.supervise import Rank, Supervisor
from trainjob.launch.usage import Watched


def main(arguments: Sequence[str]) -> int:
    """Return the exit code of the first rank that failed, or of all ranks if none did."""
    options = _parse(arguments)
    paths = RunPaths(Path(options.run_dir).resolve())
    try:
        if options.token:
            host.refuse_another_folder(paths, options.token)
        options.command = options.command or _command_of_job(paths)
        _take_from_job(options.environment_of_job, paths)
        if options.launcher == "local":
            rankings = ranks.all_on_this_host(options.instances)
        else:
            rankings = [ranks.from_launcher(options.launcher, os.environ)]
        shared = _shared_environment(options, paths)
        if shared.get(environment.COMPILE_ONLY) and rankings[0].rank != 0:
            return exits.DONE  # one instance compiles for all
        restarts = options.launcher in ("slurm", "openmpi") and "SLURM_JOB_ID" in os.environ
        if options.node_check == "on" and _does_not_pass(options, paths, rankings, shared, restarts):
            return exits.USER_OR_CLUSTER_CAN_FIX
        _record_packages(options, paths, rankings[0], shared)
        if _is_launch_only(shared):
            code = roll_call.answer(paths, _rank(options, paths, rankings[0], shared))
        else:
            code = _supervise(options, paths, rankings, shared, restarts)
        if options.launcher == "slurm":
            _leave_mark(paths, int(shared[environment.ATTEMPT]), rankings[0].rank, code)
        return code if options.launcher in ("local", "container") else _for_a_launcher(code)
    except UserError as error:
        sys.stderr.write("trainjob: %s\n" % error)
        return exits.USER_OR_CLUSTER_CAN_FIX


def _is_launch_only(shared: Dict[str, str]) -> bool:
    return environment.redirect(shared, "TRAINJOB_LAUNCH_ONLY") is not None


def _supervise(
    options: argparse.Namespace, paths: RunPaths, rankings: Sequence[Ranking], shared: Dict[str, str], restarts: bool
) -> int:
    """Return the exit code of the ranks, once all have ended."""
    held = Stacks()
    shared.update({} if options.ranks_in_containers else held.environment(shared))
    started = [_rank(options, paths, ranking, shared) for ranking in rankings]
    if options.launcher in ("local", "openmpi"):
        processes.end_with_parent(parent=options.parent)
    if options.launcher == "container":
        processes.end_with_standard_input()
    watch = _observing(options, paths, held)
    return guarded(Supervisor(paths, started, options.grace_s, restarts, watch).run)


def _does_not_pass(
    options: argparse.Namespace, paths: RunPaths, rankings: List[Ranking], shared: Dict[str, str], restarts: bool
) -> bool:
    """Return whether the node check keeps the ranks from starting."""
    record, attempt = job.read(paths.job), int(shared[environment.ATTEMPT])
    uses_data = record.train is None or record.train.data is not None
    need = Need(
        gpus=ranks.gpus_needed(rankings[0], shared) if options.accelerator == "gpu" else 0,
        data_dir=shared.get("TRAINJOB_DATA_DIR") or None if uses_data else None,
        environment=shared,
    )
    if node_check.is_refused(paths, need, rankings[0], attempt, restarts):
        return True
    # Ranks in containers may have no torch outside of them, and IPUs compile before they reduce.
    if options.accelerator == "ipu" or options.ranks_in_containers or _is_launch_only(shared):
        return False
    environments = [
        {**shared, **ranks.variables(ranking), **ranks.device(options.accelerator, ranking, shared)}
        for ranking in (rankings if need.gpus else ())
    ]
    return node_check.does_not_add_up(paths, Work(rankings, shared, environments), attempt, restarts)


def _observing(options: argparse.Namespace, paths: RunPaths, held: Stacks) -> Callable[[List[Watched]], None]:
    """Return what begins to watch the ranks. Those in containers are watched from inside."""
    if options.ranks_in_containers:
        return lambda _: None
    limit_s, is_stated = _stall_timeout(paths)
    answered = read_word(paths.stacks_request)
    orders = Orders(options.usage_every_s, limit_s, ends_stalled=is_stated, answered=answered)
    return lambda watched: observe.begin(paths, watched, held, orders)


def _stall_timeout(paths: RunPaths) -> Tuple[Optional[float], bool]:
    """Return the stall timeout of a command, and whether the job states it; None where ranks watch their own."""
    record = job.read(paths.job) if paths.job.exists() else None
    if record is None or record.train is not None:
        return None, False
    stated = record.request.job.get("stall_timeout_s")
    return (RuntimeSettings.stall_timeout_s, False) if stated is None else (float(stated), True)


def _leave_mark(paths: RunPaths, attempt: int, rank: int, code: int) -> None:
    """Tell the job script that the rank has ended: srun can't where the daemon of its step was killed."""
    try:
        folder = paths.folder / ".ended"
        folder.mkdir(exist_ok=True)
        write_atomically(folder / ("%d.%04d" % (attempt, rank)), "%d\n" % _for_a_launcher(code))
    except OSError as error:
        sys.stderr.write("trainjob: the end of rank %d can't be recorded: %s\n" % (rank, error.strerror))


def _for_a_launcher(code: int) -> int:
    # For any other code than 0, srun --kill-on-bad-exit and mpirun would end the other ranks, and rank 0 may still be
    # writing the marker.
    return exits.DONE if code == exits.CHECKPOINTED else code


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    # At the first --: argparse would remove a second one from the user's own command.
    at = arguments.index("--") if "--" in arguments else len(arguments)
    own, command = list(arguments[:at]), list(arguments[at + 1 :])
    usage = "launch [options] RUN_DIR -- COMMAND…"
    parser = argparse.ArgumentParser(prog="launch", usage=usage, description=__doc__, allow_abbrev=False)
    parser.add_argument("run_dir", metavar="RUN_DIR")
    parser.add_argument("--launcher", choices=["local", *environment.LAUNCHER_NAMES], required=True)
    parser.add_argument("--instances", type=int, default=1, help="ranks to start (launcher local)")
    parser.add_argument("--accelerator", choices=["cpu", "gpu", "ipu"], default="cpu")
    parser.add_argument("--working-folder", default="code", help="where ranks start, below RUN_DIR")
    parser.add_argument("--port", type=int, default=0, help="rendezvous port; 0: choose a free one")
    parser.add_argument("--interface", default="", help="network interface over which ranks meet")
    parser.add_argument("--data-interface", default="", help="interfaces for data, or a pattern of NCCL's: ^docker,lo")
    parser.add_argument("--binding", choices=["numa", "none"], default="numa", help="bind ranks next to their GPUs")
    parser.add_argument("--token", default="", help="the word that the job script wrote into RUN_DIR")
    parser.add_argument("--secrets-file", default="", help="NAME=VALUE lines for the ranks' environment")
    parser.add_argument("--parent", type=int, default=0, help="process with which to end (launcher local)")
    parser.add_argument("--ranks-in-containers", action="store_true", help="ranks end when their input closes")
    parser.add_argument("--grace-s", type=float, default=GRACE_S, help="seconds between TERM and KILL")
    parser.add_argument("--node-check", choices=["on", "off"], default="off", help="check this host before ranks start")
    parser.add_argument("--usage-every-s", type=float, default=EVERY_S, help="seconds between samples of use")
    # mpirun would treat a word ":" of a user's command as its own; job.json carries every word as it is.
    parser.add_argument("--command-of-job", action="store_true", help="run the command in job.json")
    parser.add_argument("--environment-of-job", default="", help="comma-separated names whose values job.json has")
    if not command and "--command-of-job" not in own:
        parser.error("a command is expected after --")
    return parser.parse_args(own, argparse.Namespace(command=command))


def _command_of_job(paths: RunPaths) -> List[str]:
    command = job.read(paths.job).command
    if not command:
        raise UserError("%s describes a task and has no command" % paths.job, "give one after --")
    return command


def _take_from_job(names: str, paths: RunPaths) -> None:
    """Set the values that an array element has of its own: one script serves all elements."""
    values = job.read(paths.job).environment if names else {}
    os.environ.update({name: values[name] for name in names.split(",") if name in values})


def _record_packages(options: argparse.Namespace, paths: RunPaths, first: Ranking, shared: Dict[str, str]) -> None:
    # Ranks in containers have the container's software, which the launcher inside records.
    if first.local_rank == 0 and not options.ranks_in_containers:
        attempt = int(shared[environment.ATTEMPT])
        # A launcher that was started by hand, without job.json, requires nothing.
        wish = job.read(paths.job).request.cluster.file.get("same_packages") if paths.job.exists() else None
        host.record_packages(paths, first.rank, attempt, required=wish == "required")


def _rank(options: argparse.Namespace, paths: RunPaths, ranking: Ranking, shared: Dict[str, str]) -> Rank:
    affinity, near = ranks.affinity(), _near_gpu(options, ranking, shared)
    if near is not None:
        sys.stderr.write("trainjob: rank %d is bound to %s\n" % (ranking.rank, near))
        affinity = ranks.Affinity(len(near.cpus), is_bound=True)
    environ = {**shared, **ranks.variables(ranking), **ranks.device(options.accelerator, ranking, shared)}
    return Rank(
        ranking=ranking,
        command=options.command,
        environment={
            **ranks.PRINTING,
            **ranks.threading(options.launcher, ranking, affinity, environ, bound_here=near is not None),
            **environ,
        },
        folder=paths.folder / options.working_folder,
        log=paths.rank_log(ranking.rank),
        cpus=near.cpus if near is not None else frozenset(),
        # The launcher outside of a container heads its log, which also says why a container does not start.
        begins_log=options.launcher != "container",
        holds_input=options.ranks_in_containers,
    )


def _near_gpu(options: argparse.Namespace, ranking: Ranking, shared: Dict[str, str]) -> Optional[binding.Binding]:
    """Return the CPUs next to the rank's GPU; None where it has none, or the machine doesn't say."""
    if options.binding != "numa" or options.accelerator != "gpu" or options.ranks_in_containers:
        return None
    gpus = binding.physical_gpus(shared, ranking.local_world_size)
    if gpus is None or environment.redirect(shared, "TRAINJOB_DEVICE") == "cpu":
        return None
    is_bound = options.launcher != "local" and ranks.affinity().is_bound
    return binding.nearby(ranking.local_rank, gpus, frozenset(os.sched_getaffinity(0)), is_bound)


def _shared_environment(options: argparse.Namespace, paths: RunPaths) -> Dict[str, str]:
    environ = dict(os.environ)
    if options.secrets_file:
        environ.update(secrets.read(options.secrets_file))
    environ.setdefault(environment.ATTEMPT, str(attempts.current(paths) or 1))
    environ[environment.RUN_DIR] = str(paths.folder)
    redirected = environment.redirect(environ, "TRAINJOB_INTERFACE")
    interface, data_interface = redirected or options.interface, "" if redirected else options.data_interface
    if options.launcher == "local":
        environ.update(ranks.rendezvous_on_this_host(options.port))
        environ[environment.TOKEN] = os.urandom(16).hex()
        interface = interface or "lo"
    elif options.token:
        environ[environment.TOKEN] = options.token
    elif options.launcher == "slurm":
        ranks.refuse_no_rendezvous(environ)
    return ranks.on_interface(environ, interface, data_interface)
