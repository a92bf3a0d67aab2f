"""Starts ranks, passes signals on, ends the others when one fails, and says which failed first."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Dict, List, NamedTuple, Optional, Sequence, Set

from trainjob.contract import exits
from trainjob.contract.environment import ATTEMPT, Ranking
from trainjob.contract.failure import Failure, record_first, tail_of_attempt
from trainjob.contract.paths import RunPaths
from trainjob.train import processes
from trainjob.train.guard import PASSED_ON, WATCHED

# A rank whose peer has died can only fail: it is given seconds, not the time of a checkpoint.
_GRACE_AFTER_FAILURE_S = 5.0
_ASK_AGAIN_S = 0.2


class Rank(NamedTuple):
    """One rank before it starts."""

    ranking: Ranking
    command: Sequence[str]
    environment: Dict[str, str]
    folder: Path
    log: Path
    begins_log: bool = True
    holds_input: bool = False  # its standard input stays open for as long as somebody watches over it


class Started(NamedTuple):
    """One rank that runs. The Popen is kept so that nobody else reaps its process."""

    rank: Rank
    process: "subprocess.Popen[bytes]"


class Supervisor:
    """Runs `ranks` to their end."""

    def __init__(self, paths: RunPaths, ranks: Sequence[Rank], grace_s: float) -> None:
        self._paths = paths
        self._ranks = ranks
        self._grace_s = grace_s
        self._running: Dict[int, Started] = {}
        self._kill_at: Optional[float] = None
        self._was_told_to_end = False
        self._was_asked_to_stop = False
        self._to_be_asked: Set[int] = set()  # ranks that USR1 has not reached yet
        self._first_failure: Optional[int] = None
        self._codes: List[int] = []

    def run(self) -> int:
        """Return the first failing rank's exit code, else CHECKPOINTED if any rank says so, else 0."""
        signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)
        processes.adopt_orphans()
        try:
            self._start()
            while self._running:
                self._handle(self._next_signal())
        finally:
            processes.kill_children()
        if self._first_failure is not None:
            return self._first_failure
        return exits.CHECKPOINTED if exits.CHECKPOINTED in self._codes else exits.DONE

    def _start(self) -> None:
        for rank in self._ranks:
            try:
                process = _start(rank)
                self._running[process.pid] = Started(rank, process)
            except OSError as error:
                _say(rank, "can't start %s in %s: %s" % (rank.command[0], rank.folder, error.strerror))
                self._failed(rank, 127 if isinstance(error, FileNotFoundError) else 126)
                return

    def _next_signal(self) -> Optional[int]:
        timeout_s = 3600.0 if self._kill_at is None else max(0.0, self._kill_at - time.monotonic())
        if self._to_be_asked:
            timeout_s = min(timeout_s, _ASK_AGAIN_S)
        received = signal.sigtimedwait(WATCHED, timeout_s)
        return None if received is None else received.si_signo

    def _handle(self, number: Optional[int]) -> None:
        # One SIGCHLD may stand for several ranks, and a signal may arrive with it: always look. First who has ended:
        # where a rank is killed, mpirun asks the others to end, its own launcher too.
        codes = processes.reap()
        ended = [(self._running.pop(pid), code) for pid, code in codes.items() if pid in self._running]
        for started, code in ended:
            self._ended(started, code)
        if number in PASSED_ON:
            self._pass_on(PASSED_ON[signal.Signals(number)])
        self._ask_those_that_listen()
        if self._kill_at is not None and time.monotonic() >= self._kill_at:
            self._kill_ranks()

    def _pass_on(self, number: int) -> None:
        if number == signal.SIGUSR1:
            self._to_be_asked |= set() if self._was_asked_to_stop else set(self._running)
            # Once: a job script repeats it, because it can't know whether it has come through.
            self._was_asked_to_stop = True
            return
        self._signal_ranks(number)
        self._was_told_to_end = True
        self._kill_after(self._grace_s)
        with contextlib.suppress(OSError):
            self._paths.terminated.touch()

    def _ask_those_that_listen(self) -> None:
        # A rank that has no handler yet would not hear it, and one that gets none must not be ended by it.
        for pid in [pid for pid in self._to_be_asked if processes.hears(pid, signal.SIGUSR1)]:
            os.kill(pid, signal.SIGUSR1)
            self._to_be_asked.discard(pid)

    def _ended(self, started: Started, returncode: int) -> None:
        started.process.returncode = returncode
        self._to_be_asked.discard(started.process.pid)
        code = exits.from_wait_status(returncode)
        self._codes.append(code)
        if code not in (exits.DONE, exits.CHECKPOINTED):
            self._failed(started.rank, code)

    def _failed(self, rank: Rank, code: int) -> None:
        if self._first_failure is not None:
            return
        self._first_failure = code
        if not self._was_told_to_end:
            _record(self._paths, rank, code)
        self._signal_ranks(signal.SIGTERM)
        self._kill_after(_GRACE_AFTER_FAILURE_S)

    def _signal_ranks(self, number: int) -> None:
        # To the rank alone, not its group: loader processes must live until the checkpoint is made.
        # By id: Popen.send_signal would reap a rank that has just ended, and its exit code be lost.
        for pid in self._running:
            os.kill(pid, number)

    def _kill_after(self, grace_s: float) -> None:
        at = time.monotonic() + grace_s
        self._kill_at = at if self._kill_at is None else min(self._kill_at, at)

    def _kill_ranks(self) -> None:
        for pid in self._running:
            os.killpg(pid, signal.SIGKILL)
        self._kill_at = None


def _start(rank: Rank) -> "subprocess.Popen[bytes]":
    rank.log.parent.mkdir(parents=True, exist_ok=True)
    with open(str(rank.log), "ab", buffering=0) as log:
        if rank.begins_log:
            log.write(_header(rank).encode())
        return subprocess.Popen(
            list(rank.command),
            cwd=str(rank.folder),
            env=rank.environment,
            stdin=subprocess.PIPE if rank.holds_input else subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            preexec_fn=_in_the_child,  # noqa: PLW1509 - this process has one thread
        )


def _in_the_child() -> None:
    # A shell's background job is born with SIGINT ignored, and so would be all that it starts.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    # Slurm sends it to every process of a step: a rank that does not listen yet, or at all, must live on.
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, WATCHED)
    processes.end_with_parent(signal.SIGKILL)


def _header(rank: Rank) -> str:
    return "--- attempt %s · rank %d of %d · %s · %s ---\n" % (
        rank.environment[ATTEMPT],
        rank.ranking.rank,
        rank.ranking.world_size,
        socket.gethostname(),
        time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    )


def _record(paths: RunPaths, rank: Rank, code: int) -> None:
    lines = tail_of_attempt(rank.log)
    failure = Failure(
        attempt=int(rank.environment[ATTEMPT]),
        rank=rank.ranking.rank,
        host=socket.gethostname(),
        exit_code=code,
        command=list(rank.command),
        tail=lines,
    )
    try:
        first = record_first(paths, failure)
    except OSError as error:
        # A full disk must not end the watch over the other ranks, nor hide how this one ended.
        first = True
        sys.stderr.write("trainjob: failure.json can't be written: %s\n" % error)
    if first:
        sys.stderr.write("trainjob: rank %d failed with exit code %d\n" % (rank.ranking.rank, code))


def _say(rank: Rank, text: str) -> None:
    with open(str(rank.log), "a") as log:
        log.write("trainjob: %s\n" % text)
