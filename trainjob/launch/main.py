"""Starts the ranks of one host and waits until all have ended. All ranks start this way.

    python -m trainjob.launch --launcher local --instances 2 RUN_DIR -- python train.py

Under `local` it starts every rank itself; under srun and mpirun it is started once per rank, and starts that one.
Standard library only, no torch: a rank starts in milliseconds. All hosts of a run start this at once, from one shared
file system, and each module is several operations there. So what not every start needs is imported where it is needed.
"""

from __future__ import annotations

import os
import signal
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Dict, List, Optional, Sequence, Tuple

from trainjob.contract import clock, environment, exits
from trainjob.contract.environment import Ranking
from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths
from trainjob.launch import host, rank_environment
from trainjob.launch.options import Options, parse
from trainjob.launch.rank_environment import Rank
from trainjob.records import attempts, job_facts
from trainjob.records.files import keep_others_from_writing
from trainjob.records.job_facts import JobFacts

if TYPE_CHECKING:
    from trainjob.launch.rank_environment import Watched
    from trainjob.launch.ranks.binding import Binding
    from trainjob.launch.witness.watching import Observation, Orders

_RECORDING_S = 8.0  # that a job script has to record its end, before Slurm kills it


def main(arguments: Sequence[str], at_start: Optional[Tuple[str, float]] = None) -> int:
    """Return the exit code of the first rank that failed, or of all ranks if none did.

    `at_start` is what the kernel had counted when this process began: see let_spin.
    """
    try:
        if os.environ.get(environment.LIMITS):
            from trainjob.launch import limits

            limits.set_as_in_prologue(os.environ[environment.LIMITS])
        options = parse(arguments)
        if options.share or os.environ.get(environment.SHARE):
            from trainjob.launch import share

            share.take(options.share or os.environ[environment.SHARE], os.environ)
        return Launch(options, at_start).run()
    except UserError as error:
        sys.stderr.write("trainjob: %s\n" % error)
        return exits.USER_OR_CLUSTER_CAN_FIX


class Launch:
    """One start of this host's ranks; under srun and mpirun of one of them.

    `shared` is the environment of all of them. Raises UserError if they can't be started.
    """

    def __init__(self, options: Options, at_start: Optional[Tuple[str, float]] = None) -> None:
        self.options, self.began, self.cpus_at_start = options, clock.time(), at_start
        self.paths = paths = RunPaths(Path(options.run_dir).resolve())
        keep_others_from_writing(paths.whole.folder)
        if options.token:
            host.refuse_another_folder(paths, options.token)
        self.job = self._job()
        self.command = options.command or (self.job.command if self.job else None)
        self.ray_timeout_s: Optional[float] = None  # of a role that has Ray: seconds until all nodes are in
        stated = job_facts.read(paths.run.job).roles if paths.role is not None else self.job.roles if self.job else {}
        if stated and self.command:
            from trainjob.contract import roles

            parsed = roles.parse(stated)
            role = next((server for server in parsed.servers if server.name == paths.role), parsed.main)
            self.ray_timeout_s = role.ready_timeout_s if role.ray else None
            if paths.role is not None:
                self.command = roles.with_address(self.command, os.environ.get(roles.variable(paths.role), ""))
        if not self.command:
            raise UserError("%s describes a task and has no command" % paths.job, "give one after --")
        if options.launcher == "local":
            self.rankings = rank_environment.all_on_this_host(options.instances)
        else:
            self.rankings = [rank_environment.from_launcher(options.launcher, os.environ)]
        self.first = self.rankings[0]
        self.python: Optional[str] = None  # of the environment that the job brings
        self.shared = self._shared_environment()
        self.attempt = int(self.shared[environment.ATTEMPT])
        self.restarts = options.launcher in ("slurm", "openmpi") and "SLURM_JOB_ID" in os.environ

    def _job(self) -> Optional[JobFacts]:
        """Return the facts in job.json; None for a launcher that was started by hand, without one.

        Sets the values in which an array element differs: one script serves all elements.
        """
        options = self.options
        is_needed = options.command_of_job or options.environment_of_job or options.node_check == "on"
        if not is_needed and not self.paths.job.exists():
            return None
        job = job_facts.read(self.paths.job)
        names = options.environment_of_job.split(",")
        os.environ.update({name: job.environment[name] for name in names if name in job.environment})
        return job

    def _shared_environment(self) -> Dict[str, str]:
        options, environ = self.options, dict(os.environ)
        if options.secrets_file:
            from trainjob.contract import secrets

            environ.update(secrets.read(options.secrets_file))
        environ.setdefault(environment.ATTEMPT, str(attempts.current(self.paths) or 1))
        environ[environment.RUN_DIR] = str(self.paths.run.folder)
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
        if not interface and self.first.local_world_size < self.first.world_size and options.accelerator != "ipu":
            interface = self._interface_that_others_reach(environ)
        return rank_environment.on_interface(environ, interface, data_interface)

    def _interface_that_others_reach(self, environ: Dict[str, str]) -> str:
        """Return the interface over which this host reaches the first; "" where its own name leads to one, too."""
        from trainjob.launch import network

        first = environ.get(environment.MASTER_ADDR, "")
        if "GLOO_SOCKET_IFNAME" in environ or network.is_loopback(first):
            return ""
        address = network.own_address()
        if address is not None and not network.is_loopback(address):
            return ""
        chosen = network.interface_to(first) or ""
        if self.first.local_rank == 0 and chosen != "lo":
            means = "means %s here, which no other host reaches" % address if address else "means nothing here"
            use = "use %s, over which %s is reached" % (chosen, first) if chosen else "may not find each other"
            text = "trainjob: the name %s %s: ranks %s. network.interface in the cluster file names another\n"
            sys.stderr.write(text % (host.own_name(), means, use))
        return chosen

    def run(self) -> int:
        """Return the exit code of the first rank that failed, or of all ranks if none did."""
        options = self.options
        is_rehearsal = environment.redirect(self.shared, "TRAINJOB_PROLOGUE") == "skip"  # which has its own interpreter
        if self.job is not None and self.job.python_environment and not is_rehearsal:
            self._enter_environment(self.job)
        if self.shared.get(environment.COMPILE_ONLY) and self.first.rank != 0:
            return exits.DONE  # one instance compiles for all
        if options.node_check == "on" and self._is_refused_by_node_check():
            return exits.USER_OR_CLUSTER_CAN_FIX
        # Ranks in containers have the container's software, which the launcher inside records.
        if self.first.local_rank == 0 and not options.ranks_in_containers:
            required = self.job is not None and self.job.same_packages == "required"
            host.record_packages(self.paths, self.first.rank, self.attempt, required, self.python)
        code = self._prepare_node() or self._supervise()
        if options.launcher in ("slurm", "openmpi"):
            # For any other code than 0, srun --kill-on-bad-exit and mpirun would end the other ranks, and rank 0 may
            # still be writing the marker.
            code = exits.DONE if code == exits.CHECKPOINTED else code
            attempts.leave_end_mark(self.paths, self.attempt, self.first.rank, code)
        elif options.launcher == "local":
            attempts.leave_end_mark(self.paths, self.attempt, None, code)
        return code

    def _enter_environment(self, job: JobFacts) -> None:
        from trainjob.launch import environments

        project = self.paths.folder / self.options.working_folder if job.command else self.paths.project
        # Its lock is held for as long as this process lives.
        made = environments.on_this_node(job.python_environment, self.paths, project, self.first)
        self.python = made.python
        self.shared.update(made.variables(self.shared))
        self.shared.pop("PYTHONHOME", None)
        if not job.command:
            self.command = [made.python, *(self.command or [])[1:]]

    def _is_refused_by_node_check(self) -> bool:
        from trainjob.launch.nodecheck import node_check

        options, shared, uses_data = self.options, self.shared, self.job is None or self.job.uses_data
        requirements = node_check.Requirements(
            gpus=self._gpus_of_node() if options.accelerator == "gpu" else 0,
            data_dir=shared.get("TRAINJOB_DATA_DIR") or None if uses_data else None,
            environment=shared,
        )
        if node_check.is_refused(self.paths, requirements, self.first, self.attempt, self.restarts):
            return True
        # Ranks in containers may have no torch outside them, and IPUs compile before they reduce.
        if options.accelerator == "ipu" or options.ranks_in_containers:
            return False
        from trainjob.launch.nodecheck.meeting import Work

        children = [self._environment_of(ranking) for ranking in (self.rankings if requirements.gpus else ())]
        work = Work(self.rankings, shared, children)
        return node_check.all_reduce_fails(self.paths, work, self.attempt, self.restarts)

    def _prepare_node(self) -> int:
        """Return 0 once the steps of this node are done. Every rank of the node waits for them, and one runs them."""
        options = self.options
        if self.job is None or not self.job.once or options.ranks_in_containers:  # the launcher inside runs them
            return exits.DONE
        from trainjob.contract import steps
        from trainjob.launch import processes
        from trainjob.launch.once.run import StepPlace, run

        if options.launcher in ("local", "openmpi"):
            processes.end_with_parent(parent=options.parent)
        folder = self.paths.folder / options.working_folder
        place = StepPlace(self.paths, self.attempt, host.node_name(), folder, self.shared)
        return run([step for step in steps.parse(self.job.once) if step.scope == steps.NODE], place)

    def _gpus_of_node(self) -> int:
        ranking = self.first._replace(local_world_size=self.options.ranks_per_node or self.first.local_world_size)
        return rank_environment.gpus_needed(ranking, self.shared)

    def _supervise(self) -> int:
        """Return the exit code of the ranks, once all have ended."""
        import gc

        from trainjob.launch import processes
        from trainjob.launch.ranks.guard import guarded, is_closed, requests_by_input
        from trainjob.launch.ranks.supervise import Supervisor
        from trainjob.launch.witness.stacks import Stacks

        options, stacks = self.options, Stacks()
        if not options.ranks_in_containers:
            self.shared.update(stacks.environment(self.shared))
        ranks = [self._rank(ranking) for ranking in self.rankings]
        if options.launcher in ("local", "openmpi"):
            processes.end_with_parent(parent=options.parent)
        if options.launcher == "container":
            processes.end_with_standard_input()
        if any(rank.environment["OMP_NUM_THREADS"] != "1" for rank in ranks):
            from trainjob.launch.ranks.spinning import let_spin

            let_spin(ranks, self.shared, self.cpus_at_start)
        answered = None if options.ranks_in_containers else attempts.asked_for_stacks(self.paths)

        def watch(watched: List[Watched]) -> Optional[Observation]:
            if options.ranks_in_containers:
                return None  # watched from inside
            from trainjob.launch.witness import watching

            return watching.begin(self.paths, watched, stacks, self._orders(answered))

        gc.enable()  # not collected during the start: see __main__.py
        grace_s, requests, looks_for_request = options.grace_s, None, None
        if options.launcher == "slurm":
            # Slurm kills the job script as well, KillWait after TERM, and it has the end to record.
            grace_s = max(grace_s / 2, grace_s - _RECORDING_S)
            requests = requests_by_input()
            looks_for_request = partial(is_closed, requests)
        supervisor = Supervisor(self.paths, ranks, grace_s, self.restarts, watch, looks_for_request=looks_for_request)
        return guarded(supervisor.run, requests, self._note_signal)

    def _note_signal(self, received: signal.struct_siginfo) -> None:
        """Note a signal that its job script has not sent, nor mpirun: what Slurm sends may go past the script."""
        options, sender = self.options, received.si_pid
        # In a container nobody outside has a number, and what ends a server is no request to its job.
        if options.launcher == "container" or self.paths.role is not None:
            return
        if options.launcher != "slurm" and sender in (0, os.getppid()):
            return
        if received.si_signo == signal.SIGTERM and self.paths.failure.exists():
            return  # srun ends the others once a rank has failed
        by = "the kernel"
        if sender:
            program = host.text("/proc/%d/comm" % sender).strip() or "a program that has ended"
            by = "%s (process %d of user %d)" % (program, sender, received.si_uid)
        who = "the launcher of rank %d on %s, sent by %s" % (self.first.rank, host.node_name(), by)
        attempts.note_signal(self.paths, self.attempt, signal.Signals(received.si_signo).name[3:], who)

    def _orders(self, answered: Optional[str]) -> Orders:
        """Return what is watched: of a user's own command more than of a task, whose ranks watch themselves."""
        from trainjob.contract.liveness import StallLimits
        from trainjob.launch.witness.watching import Orders

        job, orders = self.job, Orders(self.options.usage_every_s, answered=answered)
        if job is None:
            return orders
        stated = {name: getattr(job, name) for name in ("stall_timeout_s", "exit_grace_s", "idle_timeout_s")}
        limits = StallLimits(ends_silent=job.stall_timeout_s is not None, ends_stalled=job.on_stall == "end")
        limits = limits._replace(**{name: value for name, value in stated.items() if value is not None})
        command = [] if job.trains else self.command or []
        return orders._replace(limits=limits, command=command, progress=job.progress or "")

    def _environment_of(self, ranking: Ranking) -> Dict[str, str]:
        device = rank_environment.device(self.options.accelerator, ranking, self.shared)
        return {**self.shared, **rank_environment.variables(ranking), **device}

    def _rank(self, ranking: Ranking) -> Rank:
        options, affinity, near = self.options, rank_environment.affinity(), self._near_gpu(ranking)
        if near is not None:
            sys.stderr.write("trainjob: rank %d is bound to %s\n" % (ranking.rank, near))
            affinity = rank_environment.Affinity(len(near.cpus), is_bound=True)
        environ = self._environment_of(ranking)
        environ[environment.STARTED] = "%.3f,%.3f" % (self.began, clock.time())
        threads = rank_environment.threading(options.launcher, ranking, affinity, environ, bound_here=near is not None)
        folder, identity = self.paths.folder / options.working_folder, {}
        if self.job is None or self.job.command:
            identity = rank_environment.identity(self.paths.id, folder, ranking.rank)
            if not options.ranks_per_node:
                identity.update(rank_environment.torchrun(self.paths.id, self.attempt, ranking, environ))
        rank = Rank(
            ranking=ranking,
            command=self.command or [],
            environment={**rank_environment.PRINTING, **identity, **threads, **environ},
            folder=folder,
            log=self.paths.rank_log(ranking.rank),
            cpus=near.cpus if near is not None else frozenset(),
            # The launcher outside a container heads its log, which also shows why a container does not start.
            begins_log=options.launcher != "container",
            ranks_per_node=options.ranks_per_node,
            holds_input=options.ranks_in_containers,
        )
        if self.ray_timeout_s is not None:
            from trainjob.launch.roles import ray_node

            # A server has all GPUs of its host, and Ray sees how many these are.
            gpus = options.ranks_per_node or None if options.accelerator == "gpu" else 0
            return ray_node.of_node(rank, int(threads["OMP_NUM_THREADS"]), gpus, self.ray_timeout_s)
        if not options.ranks_per_node:
            return rank
        from trainjob.launch.ranks import node_start

        return node_start.of_node(rank, self.paths)

    def _near_gpu(self, ranking: Ranking) -> Optional[Binding]:
        """Return the CPUs next to the rank's GPU; None if it has none, or the machine doesn't say."""
        options = self.options
        if options.binding != "numa" or options.accelerator != "gpu" or options.ranks_in_containers:
            return None
        if options.ranks_per_node:
            return None  # its launcher's ranks share all of the node
        if environment.redirect(self.shared, "TRAINJOB_DEVICE") == "cpu":
            return None
        from trainjob.launch.ranks import binding

        gpus = binding.physical_gpus(self.shared, ranking.local_world_size)
        if gpus is None:
            return None
        is_bound = options.launcher != "local" and rank_environment.affinity().is_bound
        return binding.nearby(ranking.local_rank, gpus, frozenset(os.sched_getaffinity(0)), is_bound)
