"""Starts the ranks of one host and waits until all have ended. All ranks start this way.

    python -m trainjob.launch --launcher local --instances 2 RUN_DIR -- python train.py

Under `local` it starts every rank itself; under srun and mpirun it is started once per rank, and starts that one.
Standard library only, no torch: a rank starts in milliseconds. All hosts of a run start this at once, from one shared
file system, and each module is several operations there. So what not every start needs is imported where it is needed.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Callable, Dict, List, Optional, Sequence, Tuple

from trainjob.contract import environment, exits
from trainjob.contract.environment import Ranking
from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths
from trainjob.launch import host, rank_environment
from trainjob.launch.options import Options, parse
from trainjob.launch.rank_environment import Rank
from trainjob.records import attempts, job_facts
from trainjob.records.files import write_atomically
from trainjob.records.job_facts import JobFacts

if TYPE_CHECKING:
    from trainjob.launch.rank_environment import Watched
    from trainjob.launch.ranks.binding import Binding
    from trainjob.launch.witness.stacks import Stacks


def main(arguments: Sequence[str]) -> int:
    """Return the exit code of the first rank that failed, or of all ranks if none did."""
    options = parse(arguments)
    paths = RunPaths(Path(options.run_dir).resolve())
    try:
        if options.token:
            host.refuse_another_folder(paths, options.token)
        job = _job(options, paths)
        options = options._replace(command=options.command or _command_of_job(job, paths))
        if options.launcher == "local":
            rankings = rank_environment.all_on_this_host(options.instances)
        else:
            rankings = [rank_environment.from_launcher(options.launcher, os.environ)]
        shared = _shared_environment(options, paths)
        if shared.get(environment.COMPILE_ONLY) and rankings[0].rank != 0:
            return exits.DONE  # one instance compiles for all
        restarts = options.launcher in ("slurm", "openmpi") and "SLURM_JOB_ID" in os.environ
        if options.node_check == "on" and _does_not_pass(options, paths, rankings, shared, job, restarts):
            return exits.USER_OR_CLUSTER_CAN_FIX
        _record_packages(options, paths, rankings[0], shared, job)
        if _is_launch_only(shared):
            from trainjob.launch.nodecheck import roll_call

            code = roll_call.answer(paths, _rank(options, paths, rankings[0], shared))
        else:
            code = _supervise(options, paths, rankings, shared, job, restarts)
        if options.launcher == "slurm":
            _leave_mark(paths, int(shared[environment.ATTEMPT]), rankings[0].rank, code)
        return code if options.launcher in ("local", "container") else _for_a_launcher(code)
    except UserError as error:
        sys.stderr.write("trainjob: %s\n" % error)
        return exits.USER_OR_CLUSTER_CAN_FIX


def _is_launch_only(shared: Dict[str, str]) -> bool:
    return environment.redirect(shared, "TRAINJOB_LAUNCH_ONLY") is not None


def _supervise(
    options: Options,
    paths: RunPaths,
    rankings: Sequence[Ranking],
    shared: Dict[str, str],
    job: Optional[JobFacts],
    restarts: bool,
) -> int:
    """Return the exit code of the ranks, once all have ended."""
    import gc

    from trainjob.launch import processes
    from trainjob.launch.ranks.guard import guarded
    from trainjob.launch.ranks.supervise import Supervisor
    from trainjob.launch.witness.stacks import Stacks

    held = Stacks()
    shared.update({} if options.ranks_in_containers else held.environment(shared))
    started = [_rank(options, paths, ranking, shared) for ranking in rankings]
    if options.launcher in ("local", "openmpi"):
        processes.end_with_parent(parent=options.parent)
    if options.launcher == "container":
        processes.end_with_standard_input()
    watch = _observing(options, paths, held, job)
    gc.enable()  # not collected during the start: see __main__.py
    return guarded(Supervisor(paths, started, options.grace_s, restarts, watch).run)


def _does_not_pass(
    options: Options,
    paths: RunPaths,
    rankings: List[Ranking],
    shared: Dict[str, str],
    job: Optional[JobFacts],
    restarts: bool,
) -> bool:
    """Return whether the node check prevents the ranks from starting."""
    from trainjob.launch.nodecheck import node_check

    attempt = int(shared[environment.ATTEMPT])
    need = node_check.Need(
        gpus=rank_environment.gpus_needed(rankings[0], shared) if options.accelerator == "gpu" else 0,
        data_dir=shared.get("TRAINJOB_DATA_DIR") or None if job is None or job.uses_data else None,
        environment=shared,
    )
    if node_check.is_refused(paths, need, rankings[0], attempt, restarts):
        return True
    # Ranks in containers may have no torch outside them, and IPUs compile before they reduce.
    if options.accelerator == "ipu" or options.ranks_in_containers or _is_launch_only(shared):
        return False
    from trainjob.launch.nodecheck.meeting import Work

    environments = [
        {
            **shared,
            **rank_environment.variables(ranking),
            **rank_environment.device(options.accelerator, ranking, shared),
        }
        for ranking in (rankings if need.gpus else ())
    ]
    return node_check.does_not_add_up(paths, Work(rankings, shared, environments), attempt, restarts)


def _observing(
    options: Options, paths: RunPaths, held: Stacks, job: Optional[JobFacts]
) -> Callable[[List[Watched]], None]:
    """Return the function that begins to watch the ranks. Ranks in containers are watched from inside."""
    if options.ranks_in_containers:
        return lambda _: None
    answered = attempts.asked_for_stacks(paths)

    def begin(watched: List[Watched]) -> None:
        from trainjob.launch.witness import watching

        limit_s, is_stated = _stall_timeout(job)
        orders = watching.Orders(options.usage_every_s, limit_s, ends_stalled=is_stated, answered=answered)
        watching.begin(paths, watched, held, orders)

    return begin


def _stall_timeout(job: Optional[JobFacts]) -> Tuple[Optional[float], bool]:
    """Return the stall timeout of a command, and whether the job states it; None where ranks watch their own."""
    if job is None or job.trains:
        return None, False
    if job.stall_timeout_s is not None:
        return job.stall_timeout_s, True
    from trainjob.contract.runtime_settings import RuntimeSettings

    return RuntimeSettings.stall_timeout_s, False


def _leave_mark(paths: RunPaths, attempt: int, rank: int, code: int) -> None:
    """Tell the job script that the rank has ended: srun can't if the daemon of its step was killed."""
    try:
        folder = paths.folder / ".ended"
        folder.mkdir(exist_ok=True)
        # Not fsynced: nobody reads it after a power cut.
        write_atomically(folder / ("%d.%04d" % (attempt, rank)), "%d\n" % _for_a_launcher(code), durable=False)
    except OSError as error:
        sys.stderr.write("trainjob: the end of rank %d can't be recorded: %s\n" % (rank, error.strerror))


def _for_a_launcher(code: int) -> int:
    # For any other code than 0, srun --kill-on-bad-exit and mpirun would end the other ranks, and rank 0 may still be
    # writing the marker.
    return exits.DONE if code == exits.CHECKPOINTED else code


def _job(options: Options, paths: RunPaths) -> Optional[JobFacts]:
    """Return the record in job.json; None for a launcher that was started by hand, without one.

    Sets the values that an array element has of its own: one script serves all elements.
    """
    is_needed = options.command_of_job or options.environment_of_job or options.node_check == "on"
    if not is_needed and not paths.job.exists():
        return None
    job = job_facts.read(paths.job)
    names = options.environment_of_job.split(",")
    os.environ.update({name: job.environment[name] for name in names if name in job.environment})
    return job


def _command_of_job(job: Optional[JobFacts], paths: RunPaths) -> List[str]:
    if job is None or not job.command:
        raise UserError("%s describes a task and has no command" % paths.job, "give one after --")
    return job.command


def _record_packages(
    options: Options, paths: RunPaths, first: Ranking, shared: Dict[str, str], job: Optional[JobFacts]
) -> None:
    # Ranks in containers have the container's software, which the launcher inside records.
    if first.local_rank == 0 and not options.ranks_in_containers:
        required = job is not None and job.same_packages == "required"
        host.record_packages(paths, first.rank, int(shared[environment.ATTEMPT]), required)


def _rank(options: Options, paths: RunPaths, ranking: Ranking, shared: Dict[str, str]) -> Rank:
    affinity, near = rank_environment.affinity(), _near_gpu(options, ranking, shared)
    if near is not None:
        sys.stderr.write("trainjob: rank %d is bound to %s\n" % (ranking.rank, near))
        affinity = rank_environment.Affinity(len(near.cpus), is_bound=True)
    environ = {
        **shared,
        **rank_environment.variables(ranking),
        **rank_environment.device(options.accelerator, ranking, shared),
    }
    return Rank(
        ranking=ranking,
        command=options.command,
        environment={
            **rank_environment.PRINTING,
            **rank_environment.threading(options.launcher, ranking, affinity, environ, bound_here=near is not None),
            **environ,
        },
        folder=paths.folder / options.working_folder,
        log=paths.rank_log(ranking.rank),
        cpus=near.cpus if near is not None else frozenset(),
        # The launcher outside a container heads its log, which also shows why a container does not start.
        begins_log=options.launcher != "container",
        holds_input=options.ranks_in_containers,
    )


def _near_gpu(options: Options, ranking: Ranking, shared: Dict[str, str]) -> Optional[Binding]:
    """Return the CPUs next to the rank's GPU; None if it has none, or the machine doesn't say."""
    if options.binding != "numa" or options.accelerator != "gpu" or options.ranks_in_containers:
        return None
    if environment.redirect(shared, "TRAINJOB_DEVICE") == "cpu":
        return None
    from trainjob.launch.ranks import binding

    gpus = binding.physical_gpus(shared, ranking.local_world_size)
    if gpus is None:
        return None
    is_bound = options.launcher != "local" and rank_environment.affinity().is_bound
    return binding.nearby(ranking.local_rank, gpus, frozenset(os.sched_getaffinity(0)), is_bound)


def _shared_environment(options: Options, paths: RunPaths) -> Dict[str, str]:
    environ = dict(os.environ)
    if options.secrets_file:
        from trainjob.contract import secrets

        environ.update(secrets.read(options.secrets_file))
    environ.setdefault(environment.ATTEMPT, str(attempts.current(paths) or 1))
    environ[environment.RUN_DIR] = str(paths.folder)
    redirected = environment.redirect(environ, "TRAINJOB_INTERFACE")
    interface, data_interface = redirected or options.interface, "" if redirected else options.data_interface
    if options.launcher == "local":
        environ.update(rank_environment.rendezvous_on_this_host(options.port))
        environ[environment.TOKEN] = os.urandom(16).hex()
        interface = interface or "lo"
    elif options.token:
        environ[environment.TOKEN] = options.token
    elif options.launcher == "slurm":
        rank_environment.refuse_no_rendezvous(environ)
    return rank_environment.on_interface(environ, interface, data_interface)
