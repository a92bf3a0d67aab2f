"""Starts ranks, passes signals on, ends the others when one fails, and records which failed first and why."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Callable, Dict, FrozenSet, List, NamedTuple, Optional, Sequence

from trainjob.contract import clock, exits
from trainjob.contract.environment import ATTEMPT
from trainjob.contract.paths import RunPaths
from trainjob.launch import host, processes
from trainjob.launch.processes import Ended
from trainjob.launch.rank_environment import Rank, Watched
from trainjob.launch.ranks.asking import StopRequests, working_folders
from trainjob.launch.ranks.guard import PASSED_ON, WATCHED, in_child
from trainjob.launch.ranks.saving import Save
from trainjob.launch.witness.evidence import Witness
from trainjob.records import attempts

if TYPE_CHECKING:
    from trainjob.launch.witness.watching import Observation

# A rank whose peer has died can only fail, so it gets seconds to end, not the time for a checkpoint.
_GRACE_AFTER_FAILURE_S = 5.0
# How a rank ends that saves when it is asked to stop, and then lets the signal end it: by TERM or USR1.
_BY_REQUEST = (143, 138)
# Slurm signals the processes of a step one after the other.
_DIRECT_WITHIN_S = 0.3
_LOOK_FOR_REQUEST_S = 5.0
_LOOK_FOR_SAVE_S = 0.1
_OF_MPI = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK")


class Started(NamedTuple):
    """One running rank. The Popen is kept so that nothing else reaps its process."""

    rank: Rank
    process: "subprocess.Popen[bytes]"


class Supervisor:
    """Runs `ranks` to their end.

    `restarts`: the job script starts the job again if it finds the marker `requeue`, so the marker is
    left after a failure that another attempt may not meet. `observe` is called with the ranks that run, and
    returns what watches them. `looks_for_request` returns whether the job script can ask the ranks to stop by a file
    alone; None: it never does.
    """

    def __init__(
        self,
        paths: RunPaths,
        ranks: Sequence[Rank],
        grace_s: float,
        restarts: bool = False,
        observe: Callable[[List[Watched]], Optional[Observation]] = lambda _: None,
        *,
        looks_for_request: Optional[Callable[[], bool]] = None,
    ) -> None:
        self._paths = paths
        self._ranks = ranks
        self._attempt = int(ranks[0].environment[ATTEMPT])
        self._grace_s = grace_s
        self._restarts = restarts
        self._observe = observe
        self._looks_for_request = looks_for_request
        self._running: Dict[int, Started] = {}
        self._kill_at: Optional[float] = None
        self._got_term = False
        self._save: Optional[Save] = None  # for which TERM waits
        self._was_asked_to_stop = False
        self._asking = StopRequests(paths)
        self._first_failure: Optional[int] = None
        self._codes: List[int] = []
        self._witness = Witness()
        self._observation: Optional[Observation] = None

    def run(self) -> int:
        """Return the exit code of the rank that failed first, else CHECKPOINTED if any rank returned that, else 0.

        UNRECORDED_REQUEST instead of the last two where a rank was asked to stop and the run directory does not say so.
        """
        signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)
        processes.adopt_orphans()
        try:
            # Before any rank: on storage that hangs, a signal would never reach them.
            if self._ranks[0].number == 0 and not self._ranks[0].holds_input:
                attempts.keep_room_for_request(self._paths)
            self._start()
            # Explains failures. Loaded now: ranks don't wait for it, and it works even if the code's folder vanishes.
            import trainjob.launch.witness.failing  # noqa: F401

            if self._running:
                started = [(pid, started.rank) for pid, started in self._running.items()]
                self._observation = self._observe(
                    [
                        Watched(int(rank.environment[ATTEMPT]), rank.number, pid, rank.environment, rank.ranks_per_node)
                        for pid, rank in started
                    ]
                )
            while self._running:
                timeout_s = 3600.0 if self._looks_for_request is None else _LOOK_FOR_REQUEST_S
                if self._kill_at is not None:
                    timeout_s = min(timeout_s, max(0.0, self._kill_at - clock.monotonic()))
                if self._save is not None:
                    timeout_s = min(timeout_s, _LOOK_FOR_SAVE_S)
                received = signal.sigtimedwait(WATCHED, min(timeout_s, self._asking.look_within_s))
                self._handle(None if received is None else received.si_signo, is_direct=self._is_direct(received))
                if self._looks_for_request is not None and self._looks_for_request() and self._is_requested():
                    self._looks_for_request = None
                    self._handle(signal.SIGUSR1)
            if self._observation is not None:
                self._observation.finish()
            self._asking.finish(self._ranks[0])
        finally:
            processes.kill_children()
        if self._first_failure is not None:
            return self._first_failure
        if self._asking.is_unrecorded:
            return exits.UNRECORDED_REQUEST
        return exits.CHECKPOINTED if exits.CHECKPOINTED in self._codes else exits.DONE

    def _is_requested(self) -> bool:
        """Return whether the job script's file asks this attempt to stop."""
        with contextlib.suppress(OSError):
            os.listdir(str(self._paths.folder))  # NFS remembers for a minute that there is no such file
            return self._paths.request.read_text().strip() == str(self._attempt)
        return False

    def _start(self) -> None:
        for rank in self._ranks:
            try:
                process = _start(rank, self._paths)
                self._running[process.pid] = Started(rank, process)
            except OSError as error:
                with open(str(rank.log), "a") as log:
                    log.write(
                        "trainjob: can't start %s in %s: %s\n" % (rank.command[0], rank.folder, _why(rank, error))
                    )
                self._failed(rank, Ended(exits.of_no_start(error), 0))
                return

    def _is_direct(self, received: Optional[signal.struct_siginfo]) -> bool:
        """Return whether Slurm has sent a signal to every process of the step, so that the ranks have got it as well.

        By cgroups it sends one to the tasks alone, which is the guard, which passes it on.
        """
        if received is None or received.si_signo == signal.SIGCHLD or not self._restarts:
            return False
        again = None
        if not _is_of_slurm(received):
            again = signal.sigtimedwait({received.si_signo}, _DIRECT_WITHIN_S)
        return _is_of_slurm(received) or (again is not None and _is_of_slurm(again))

    def _handle(self, number: Optional[int], *, is_direct: bool = False) -> None:
        # One SIGCHLD may stand for several ranks, and another signal may arrive with it, so always look for ended
        # ranks, and do so first: when a rank is killed, mpirun tells the others to end, its own launcher too.
        signal_to_pass = PASSED_ON.get(signal.Signals(number)) if number is not None else None
        reaped = processes.reap()
        if signal_to_pass is None and any(ended.returncode == -signal.SIGTERM for ended in reaped.values()):
            later = signal.sigtimedwait({signal.SIGTERM}, _DIRECT_WITHIN_S)
            if later is not None:
                signal_to_pass, is_direct = signal.SIGTERM, self._is_direct(later)
        for started, ended in [(self._running.pop(pid), reaped[pid]) for pid in reaped if pid in self._running]:
            # Slurm may have signalled the rank as well, and earlier.
            got_term = (self._got_term and self._save is None) or signal_to_pass == signal.SIGTERM
            self._ended(started, ended, got_term=got_term)
        if signal_to_pass is not None:
            self._pass_on(signal_to_pass, is_direct=is_direct)
        self._asking.look({pid: started.rank for pid, started in self._running.items()})
        if self._save is not None and self._save.is_over:
            self._save = None
            self._signal_ranks(signal.SIGTERM)
        if self._kill_at is not None and clock.monotonic() >= self._kill_at:
            for pid in self._running:
                os.killpg(pid, signal.SIGKILL)
            self._kill_at = None

    def _pass_on(self, number: int, *, is_direct: bool) -> None:
        running = {pid: started.rank for pid, started in self._running.items()}
        if number == signal.SIGUSR1:
            # Only once: a job script repeats the signal, because it can't know whether the first one arrived.
            if not self._was_asked_to_stop and is_direct:
                self._asking.record_signal(self._asking.handling(running, signal.SIGUSR1), signal.SIGUSR1)
            if not self._was_asked_to_stop:
                self._asking.begin(running)
            self._was_asked_to_stop = True
            return
        handlers = self._asking.handling(running, signal.SIGTERM)
        if not is_direct and self._save is None:
            if not (handlers or self._got_term or any(rank.holds_input for rank in running.values())):
                self._save = self._save_under_way(running)
            if self._save is None:
                self._signal_ranks(number)
        self._got_term = True
        self._kill_after(self._grace_s)
        # Only now: storage that hangs must not keep the signal from the ranks.
        self._asking.record_signal(handlers, signal.SIGTERM)
        with contextlib.suppress(OSError):
            if running:
                self._paths.terminated(self._attempt).touch()

    def _save_under_way(self, running: Dict[int, Rank]) -> Optional[Save]:
        """Return what ranks that TERM ends at once may be writing; None if nobody can look, or has the time."""
        # mpirun and poprun give this process a second after TERM, and what its ranks have started would outlive it.
        if any(name in os.environ for name in _OF_MPI):
            return None
        folders = [folder for pid, rank in running.items() for folder in working_folders(pid, rank)]
        try:
            return Save(self._paths, self._ranks[0], folders, self._grace_s / 2) if folders else None
        except RuntimeError:  # there are as many threads as there may be
            return None

    def _ended(self, started: Started, ended: Ended, *, got_term: bool) -> None:
        pid, rank = started.process.pid, started.rank
        started.process.returncode = ended.returncode
        self._asking.forget(pid)
        observation, was_killed = self._observation, ended.returncode == -signal.SIGKILL
        if was_killed and observation is not None and observation.has_outlived(rank.number):
            ended = Ended(exits.DONE, ended.peak_rss_bytes)
        if rank.ranks_per_node and ended.returncode != 0:
            from trainjob.launch.ranks import node_start

            rank, ended = node_start.failed_rank(rank, ended, self._paths)
        code = exits.from_wait_status(ended.returncode)
        if got_term and ended.returncode in (exits.DONE, *_BY_REQUEST):
            # A rank that no handler kept would have been ended by the signal.
            self._asking.note(pid, signal.SIGTERM, started.rank)
        if code in _BY_REQUEST and self._asking.has_asked(pid):
            code = exits.CHECKPOINTED
        if code == exits.UNRECORDED_REQUEST and rank.holds_input:
            self._asking.is_unrecorded, code = True, exits.DONE  # the launcher in a container says so of its ranks
        self._codes.append(code)
        if code not in (exits.DONE, exits.CHECKPOINTED):
            self._failed(rank, ended, got_term=got_term)

    def _failed(self, rank: Rank, ended: Ended, *, got_term: bool = False) -> None:
        if self._first_failure is not None:
            return
        self._first_failure = exits.from_wait_status(ended.returncode)
        # A rank that was signalled at this moment is to blame unless it ended by that signal.
        if not (self._got_term or (got_term and self._first_failure in _BY_REQUEST)):
            from trainjob.launch.witness import failing

            failing.record(self._paths, rank, ended, self._witness, self._restarts)
        self._signal_ranks(signal.SIGTERM)
        self._kill_after(_GRACE_AFTER_FAILURE_S)

    def _signal_ranks(self, number: int) -> None:
        # To the rank alone, not to its group: loader processes must live until the checkpoint is written.
        # By id: Popen.send_signal would reap a rank that has just ended, and its exit code would be lost.
        for pid in self._running:
            os.kill(pid, number)

    def _kill_after(self, grace_s: float) -> None:
        at = clock.monotonic() + grace_s
        self._kill_at = at if self._kill_at is None else min(self._kill_at, at)


def _why(rank: Rank, error: OSError) -> str:
    """Return why the rank's program can't be started: the kernel's word for a missing program suits a folder, too."""
    if not isinstance(error, FileNotFoundError) or not Path(rank.folder).is_dir():
        return error.strerror or str(error)
    if "/" in rank.command[0]:
        return "no such program, or the interpreter that its first line names is missing"
    return "no such program on the job's PATH, %s" % rank.environment.get("PATH", os.defpath)


def _start(rank: Rank, paths: RunPaths) -> "subprocess.Popen[bytes]":
    rank.log.parent.mkdir(parents=True, exist_ok=True)
    for number in rank.numbers if rank.begins_log else ():
        with open(str(paths.rank_log(number)), "ab") as log:
            log.write(rank.header(number).encode())
    with open(str(rank.log), "ab", buffering=0) as log:
        return subprocess.Popen(
            list(rank.command),
            cwd=str(rank.folder),
            env=rank.environment,
            stdin=subprocess.PIPE if rank.holds_input else subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            preexec_fn=lambda: _in_the_child(rank.cpus),  # noqa: PLW1509 - this process has one thread
        )


def _in_the_child(cpus: FrozenSet[int]) -> None:
    if cpus:
        os.sched_setaffinity(0, cpus)
    # As srun starts it: libraries check whether it has a handler.
    in_child(signal.SIGKILL, signal.SIG_DFL)


def _is_of_slurm(received: signal.struct_siginfo) -> bool:
    # A container may have process ids of its own, in which the sender has none.
    return received.si_pid == 0 or host.text(Path("/proc/%d/comm" % received.si_pid)).startswith("slurmstepd")
