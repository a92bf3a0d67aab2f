"""Requests to stop: a signal, the stop file, or a newer attempt of the same run. Standard library only."""

from __future__ import annotations

import os
import signal
import sys
from typing import Iterable, Iterator, List, NamedTuple, TypeVar

from trainjob.contract import clock
from trainjob.contract.paths import RunPaths
from trainjob.records.attempts import is_stale

# How often files are checked: soon enough for a person, rarely enough for shared storage.
_LOOK_EVERY_SECONDS = 0.2
_received: List[int] = []

Value = TypeVar("Value")


class StaleAttemptError(Exception):
    """A newer attempt of this run has started, so this one must not write anything more."""


class Flags(NamedTuple):
    """Requests as far as this rank knows: to stop, and because a newer attempt has started."""

    stop: bool = False
    stale: bool = False


def listen() -> None:
    """Turn USR1 and TERM into a request to checkpoint and stop. Call it before torch is imported."""
    for number in (signal.SIGUSR1, signal.SIGTERM):
        signal.signal(number, lambda received, _frame: _received.append(received))


def without_usr1(values: Iterable[Value]) -> Iterator[Value]:
    """Return an iterator over `values` whose worker processes block USR1, which Slurm sends to all processes of a step.

    Workers start with the iterator and inherit the mask. Unlike a handler it survives exec, so that it also protects
    workers that are spawned.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGUSR1,))
    try:
        return iter(values)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class Requests:
    """Looks for requests, cheaply enough to do so after every block."""

    def __init__(self, paths: RunPaths, attempt: int) -> None:
        self._paths = paths
        self._attempt = attempt
        self._next_look = 0.0
        self._seen = Flags()

    def now(self) -> Flags:
        """Return what is requested. Files may be noticed up to 0.2 s late, signals never."""
        if clock.monotonic() >= self._next_look:
            self._seen = Flags(self._paths.stop.exists(), is_stale(self._paths, self._attempt))
            self._next_look = clock.monotonic() + _LOOK_EVERY_SECONDS
        return Flags(True, self._seen.stale) if _received else self._seen

    def refuse_stale(self) -> None:
        """Raise StaleAttemptError if a newer attempt has started. Call it right before writing anything that lasts."""
        if is_stale(self._paths, self._attempt):
            raise StaleAttemptError("attempt %d" % self._attempt)


def leave(code: int) -> None:
    """End this process with `code` at once."""
    sys.stdout.flush()
    sys.stderr.flush()
    # gloo's threads may still wait for a rank that is gone. Ending them with the interpreter aborts one process in a
    # dozen ("terminate called without an active exception").
    os._exit(code)
