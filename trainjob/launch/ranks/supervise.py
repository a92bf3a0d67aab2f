"""Starts ranks, passes signals on, ends the others when one fails, and records which failed first and why."""

from __future__ import annotations

import contextlib
import os
import re
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
from trainjob.launch.ranks.asking import StopRequests
from trainjob.launch.ranks.guard import PASSED_ON, WATCHED
from trainjob.launch.witness.evidence import Witness

if TYPE_CHECKING:
    from trainjob.launch.witness.watching import Observation

# A rank whose peer has died can only fail, so it gets seconds to end, not the time for a checkpoint.
_GRACE_AFTER_FAILURE_S = 5.0
# How a rank ends that saves when it is asked to stop, and then lets the signal end it: by TERM or USR1.
_BY_REQUEST = (143, 138)
_SHELLS = ("sh", "bash", "dash", "ksh", "zsh")
_SHEBANG = r"#!.*\b(?:%s)\b" % "|".join(_SHELLS)
# `trap` at the beginning of a command, then its words up to the end of the command.
_TRAP = r"(?m)(?:^|[;&|{(]|\b(?:then|do|else)\b)[ \t]*trap[ \t][^\n]*\b(?:SIG)?USR1\b"


class Started(NamedTuple):
    """One running rank. The Popen is kept so that nothing else reaps its process."""

    rank: Rank
    process: "subprocess.Popen[bytes]"


class Supervisor:
    """Runs `ranks` to their end.

    `restarts`: the job script starts the job again if it finds the marker `requeue`, so the marker is
    left after a failure that another attempt may not meet. `observe` is called with the ranks that run, and
    returns what watches them.
    """

    def __init__(
        self,
        paths: RunPaths,
        ranks: Sequence[Rank],
        grace_s: float,
        restarts: bool = False,
        observe: Callable[[List[Watched]], Optional[Observation]] = lambda _: None,
    ) -> None:
        self._paths = paths
        self._ranks = ranks
        self._grace_s = grace_s
        self._restarts = restarts
        self._observe = observe
        self._running: Dict[int, Started] = {}
        self._kill_at: Optional[float] = None
        self._was_told_to_end = False
        self._was_asked_to_stop = False
        self._asking = StopRequests(paths)
        self._first_failure: Optional[int] = None
        self._codes: List[int] = []
        self._witness = Witness()
        self._observation: Optional[Observation] = None

    def run(self) -> int:
        """Return the exit code of the rank that failed first, else CHECKPOINTED if any rank returned that, else 0."""
        signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)
        processes.adopt_orphans()
        try:
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
                timeout_s = 3600.0 if self._kill_at is None else max(0.0, self._kill_at - clock.monotonic())
                received = signal.sigtimedwait(WATCHED, min(timeout_s, self._asking.look_within_s))
                self._handle(None if received is None else received.si_signo)
            if self._observation is not None:
                self._observation.finish()
            self._asking.finish(self._ranks[0])
        finally:
            processes.kill_children()
        if self._first_failure is not None:
            return self._first_failure
        return exits.CHECKPOINTED if exits.CHECKPOINTED in self._codes else exits.DONE

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
                self._failed(rank, Ended(127 if isinstance(error, FileNotFoundError) else 126, 0))
                return

    def _handle(self, number: Optional[int]) -> None:
        # One SIGCHLD may stand for several ranks, and another signal may arrive with it, so always look for ended
        # ranks, and do so first: when a rank is killed, mpirun tells the others to end, its own launcher too.
        told = PASSED_ON.get(signal.Signals(number)) if number is not None else None
        reaped = processes.reap()
        for started, ended in [(self._running.pop(pid), reaped[pid]) for pid in reaped if pid in self._running]:
            # Slurm may have told the rank as well, which was faster.
            self._ended(started, ended, is_told=self._was_told_to_end or told == signal.SIGTERM)
        if told is not None:
            self._pass_on(told)
        self._asking.look({pid: started.rank for pid, started in self._running.items()})
        if self._kill_at is not None and clock.monotonic() >= self._kill_at:
            for pid in self._running:
                os.killpg(pid, signal.SIGKILL)
            self._kill_at = None

    def _pass_on(self, number: int) -> None:
        running = {pid: started.rank for pid, started in self._running.items()}
        if number == signal.SIGUSR1:
            # Only once: a job script repeats the signal, because it can't know whether the first one arrived.
            if not self._was_asked_to_stop:
                self._asking.begin(running)
            self._was_asked_to_stop = True
            return
        self._asking.told(running)
        self._signal_ranks(number)
        self._was_told_to_end = True
        self._kill_after(self._grace_s)
        with contextlib.suppress(OSError):
            self._paths.terminated.touch()

    def _ended(self, started: Started, ended: Ended, *, is_told: bool) -> None:
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
        if is_told and ended.returncode in (exits.DONE, *_BY_REQUEST):
            # A rank that no handler kept would have been ended by the signal.
            self._asking.note(pid, signal.SIGTERM, started.rank)
        if code in _BY_REQUEST and self._asking.has_asked(pid):
            code = exits.CHECKPOINTED
        self._codes.append(code)
        if code not in (exits.DONE, exits.CHECKPOINTED):
            self._failed(rank, ended, is_told=is_told)

    def _failed(self, rank: Rank, ended: Ended, *, is_told: bool = False) -> None:
        if self._first_failure is not None:
            return
        self._first_failure = exits.from_wait_status(ended.returncode)
        # Told at this moment, it is to blame unless it ended by that signal.
        if not (self._was_told_to_end or (is_told and self._first_failure in _BY_REQUEST)):
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
    usr1 = signal.SIG_DFL if traps_usr1(rank.command, rank.folder) else signal.SIG_IGN
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
            preexec_fn=lambda: _in_the_child(rank.cpus, usr1),  # noqa: PLW1509 - this process has one thread
        )


def _in_the_child(cpus: FrozenSet[int], usr1: signal.Handlers) -> None:
    if cpus:
        os.sched_setaffinity(0, cpus)
    # A background job of a shell starts with SIGINT ignored, and would pass that on to all its descendants.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    # Slurm sends USR1 to every process of a step; a rank that does not handle it, or not yet, must survive.
    signal.signal(signal.SIGUSR1, usr1)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, WATCHED)
    processes.end_with_parent(signal.SIGKILL)


def traps_usr1(command: Sequence[str], folder: Path) -> bool:
    """Return whether `command`, started in `folder`, is a shell script, or a shell with -c, that traps USR1.

    Many scripts written for sbatch are. Ranks start with USR1 ignored, because Slurm sends it to every process of a
    step and one without a handler must survive. A program can set a handler all the same. A shell can't: POSIX forbids
    it to trap a signal that was ignored when it started. Such a script therefore starts with the signal's default
    action, as it would under plain sbatch.
    """
    program, *words = command
    if os.path.basename(program) not in _SHELLS:
        script = host.text(folder / program) if "/" in program else ""
        return bool(re.match(_SHEBANG, script) and re.search(_TRAP, script))
    first = next((word for word in words if not word.startswith("-")), None)
    if first is None:
        return False
    options = words[: words.index(first)]
    is_program = any("c" in option and not option.startswith("--") for option in options)
    return bool(re.search(_TRAP, first if is_program else host.text(folder / first)))
