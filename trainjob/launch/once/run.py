"""Runs steps, each in one process at a time, and records why one failed."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Callable, Dict, List, NamedTuple, Optional, Sequence

from trainjob.contract import clock, environment, exits
from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths, with_home
from trainjob.contract.steps import JOB, OnceStep
from trainjob.launch import processes
from trainjob.launch.host import own_name
from trainjob.launch.ranks.guard import PASSED_ON, WATCHED, in_child
from trainjob.records import attempts
from trainjob.records.failure import Failure, record_first, tail_of_attempt
from trainjob.records.step_lock import POLL_S, Lock, LostError, Owner

# USR1 stays pending: it asks ranks, which come later, for a checkpoint.
_HEARD = WATCHED - {signal.SIGUSR1}
_GRACE_S = 5.0
# As `timeout` of coreutils has it.
_TIMED_OUT = 124


class StepPlace(NamedTuple):
    """The place of steps: the attempt, the host by its scheduler's name, and the environment of their processes."""

    paths: RunPaths
    attempt: int
    host: str
    folder: Path
    environment: Dict[str, str]


class _SignalledError(Exception):
    """A signal ends the run."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.code = 128 + number


def run(steps: Sequence[OnceStep], place: StepPlace) -> int:
    """Return 0 once all steps are done, by this process or another one; else the code with which the first failed.

    Signals are blocked from here on. Raises UserError where a lock can't be made.
    """
    if environment.redirect(place.environment, "TRAINJOB_PROLOGUE") == "skip":
        for step in steps:
            _say("rehearsal: skipping %s (and the prologue)" % (step,))
        return exits.DONE
    signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)
    for ignored in (signal.SIGUSR1, signal.SIGCHLD):
        signal.signal(ignored, signal.SIG_DFL)  # one that is ignored does not stay pending
    processes.adopt_orphans()
    runner = _Runner(place)
    try:
        for step in steps:
            code = runner.once(step)
            if code:
                return code
    except _SignalledError as signalled:
        return signalled.code
    except LostError as lost:
        _say("%s: this attempt ends" % lost)
        return exits.USER_OR_CLUSTER_CAN_FIX
    return exits.DONE


def _say(text: str) -> None:
    sys.stderr.write("trainjob: %s\n" % text)


class _Runner:
    def __init__(self, place: StepPlace) -> None:
        self._place = place
        self._owner = Owner(place.paths.id, place.attempt, place.host)
        self._held: List[Lock] = []

    def once(self, step: OnceStep) -> int:
        """Return the exit code of a step: of this run of it, or of the one that another process made."""
        place, words = self._place, json.dumps(step.command).encode()
        done = "done %s" % hashlib.sha256(words).hexdigest()[:16]
        failed = "failed %s %d " % (place.paths.id, place.attempt)
        if step.scope == JOB:  # elements of an array share it
            folder = place.paths.whole.folder / ".once" / ("job-%d" % step.number)
        else:
            folder = place.paths.folder / ".once" / ("node-%d-%s-%d" % (step.number, place.host, place.attempt))
        settled = self._acquire(folder, step, lambda word: word == done or word.startswith(failed))
        if settled is not None:
            return int(settled[len(failed) :]) if settled.startswith(failed) else exits.DONE
        word = "released"
        try:
            if step.lock is not None:
                self._acquire(with_home(step.lock), step, lambda _: False)
            code = self._run(step)
            word = "%s%d" % (failed, code) if code else done
        finally:
            # Also for a lock that was lost: nothing reads its number any more.
            for lock, last in zip(reversed(self._held), ["released"] * (len(self._held) - 1) + [word]):
                lock.release(last)
            self._held = []
        return code

    def _acquire(self, folder: Path, step: OnceStep, is_settled: Callable[[str], bool]) -> Optional[str]:
        lock = Lock(folder, self._owner, self._pause)
        try:
            settled = lock.acquire(is_settled, lambda who: _say("%s waits for %s" % (step, who or "another process")))
        except OSError as error:
            raise UserError(
                "%s: its lock %s can't be made: %s" % (step, folder, error.strerror),
                "give a folder that you may write in",
            ) from None
        if settled is None:
            self._held.append(lock)
        return settled

    def _pause(self, seconds: float) -> None:
        """Wait for so long, or until a child ends. Raises _ToldError, and LostError if a newer start took over."""
        for lock in self._held:
            lock.beat()
        if attempts.is_stale(self._place.paths, self._place.attempt):
            raise LostError("attempt %d is not the newest" % self._place.attempt)
        received = signal.sigtimedwait(_HEARD, seconds)
        if received is not None and received.si_signo in PASSED_ON:
            raise _SignalledError(PASSED_ON[signal.Signals(received.si_signo)])

    def _run(self, step: OnceStep) -> int:
        place, began_at = self._place, clock.monotonic()
        log = place.paths.step_log(step.scope, step.number, "" if step.scope == JOB else place.host)
        log.parent.mkdir(parents=True, exist_ok=True)
        _say("%s begins, and writes to logs/%s" % (step, log.name))
        with open(str(log), "ab", buffering=0) as stream:
            now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(clock.time()))
            header = (place.attempt, step, own_name(), now)
            stream.write(("--- attempt %d · %s · %s · %s ---\n" % header).encode())
            try:
                process = subprocess.Popen(
                    step.command,
                    cwd=str(place.folder),
                    env=place.environment,
                    stdin=subprocess.DEVNULL,
                    stdout=stream,
                    stderr=stream,
                    start_new_session=True,
                    preexec_fn=lambda: in_child(signal.SIGKILL, signal.SIG_IGN),  # noqa: PLW1509 - this process has one thread
                )
            except OSError as error:
                stream.write(("can't start %s: %s\n" % (step.command[0], error.strerror)).encode())
                return self._failed(step, log, exits.of_no_start(error))
        try:
            in_time = self._wait(process.pid, began_at + step.timeout_s)
        finally:
            code = _end(process)
        if in_time and code == exits.DONE:
            _say("%s is done after %.1f s" % (step, clock.monotonic() - began_at))
            return exits.DONE
        return self._failed(step, log, code if in_time else _TIMED_OUT, timed_out=not in_time)

    def _wait(self, pid: int, until: float) -> bool:
        """Return whether the process has ended in time."""
        while os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            left_s = until - clock.monotonic()
            if left_s <= 0:
                return False
            self._pause(min(POLL_S, left_s))
        return True

    def _failed(self, step: OnceStep, log: Path, code: int, *, timed_out: bool = False) -> int:
        place = self._place
        how = "did not end in %g s" % step.timeout_s if timed_out else "failed with exit code %d" % code
        _say("%s %s on host %s" % (step, how, own_name()))
        failure = Failure(
            attempt=place.attempt,
            rank=0,
            host=own_name(),
            exit_code=code,
            command=step.command,
            tail=tail_of_attempt(log),
            step=str(step),
            timeout_s=step.timeout_s if timed_out else None,
        )
        try:
            record_first(place.paths, failure)
        except OSError as error:
            _say("failure.json can't be written: %s" % error)
        return code


def _end(process: "subprocess.Popen[bytes]") -> int:
    """Return the exit code of a step. What still runs of it, and what it left behind, is ended: TERM, then KILL."""
    number = signal.SIGTERM
    until = clock.monotonic() + _GRACE_S
    while os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        os.killpg(process.pid, number)
        signal.sigtimedwait({signal.SIGCHLD}, max(0.0, until - clock.monotonic()))
        number = signal.SIGTERM if clock.monotonic() < until else signal.SIGKILL
    # Before it is reaped: until then no other group can have its number.
    os.killpg(process.pid, signal.SIGKILL)
    code = exits.from_wait_status(process.wait())
    processes.kill_children()  # those that left its group
    return code
