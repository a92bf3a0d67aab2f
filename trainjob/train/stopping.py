"""Requests to stop: a signal, the stop file, or a newer attempt of the same run. Standard library only."""

from __future__ import annotations

import signal
import time
from typing import Any, Iterable, Iterator, List, NamedTuple, TypeVar

from trainjob.contract.attempts import is_stale
from trainjob.contract.paths import RunPaths

# Files are looked at this often: often enough for a person, rarely enough for shared storage.
_LOOK_EVERY_SECONDS = 0.2
_received: List[int] = []

Value = TypeVar("Value")


class StaleAttemptError(Exception):
    """A newer attempt of this run has begun: this one must write nothing more."""


class Asked(NamedTuple):
    """What this rank knows to be asked of the run."""

    stop: bool
    stale: bool


def listen() -> None:
    """Turn USR1 and TERM into a request to checkpoint and stop. Called first of all, before torch is imported."""
    for number in (signal.SIGUSR1, signal.SIGTERM):
        signal.signal(number, _receive)


def begin_unasked(values: Iterable[Value]) -> Iterator[Value]:
    """Return an iterator over `values` whose processes, begun with it, never see USR1: Slurm sends it to all of a step.

    A mask outlives exec as a handler does not: one that is spawned would be ended by it.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGUSR1,))
    try:
        return iter(values)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _receive(number: int, frame: Any) -> None:  # noqa: ARG001 - the form of a signal handler
    _received.append(number)


class Requests:
    """Looks for requests, cheaply enough to be asked after every block."""

    def __init__(self, paths: RunPaths, attempt: int) -> None:
        self._paths = paths
        self._attempt = attempt
        self._next_look = 0.0
        self._asked = Asked(False, False)

    def now(self) -> Asked:
        """Return what is asked. Files may be seen up to 0.2 s late, signals never."""
        if time.monotonic() >= self._next_look:
            self._look()
        return Asked(True, self._asked.stale) if _received else self._asked

    def _look(self) -> None:
        self._asked = Asked(self._paths.stop.exists(), is_stale(self._paths, self._attempt))
        self._next_look = time.monotonic() + _LOOK_EVERY_SECONDS

    def refuse_stale(self) -> None:
        """Raise StaleAttemptError where a newer attempt has begun: asked right before anything lasting is written."""
        if is_stale(self._paths, self._attempt):
            raise StaleAttemptError("attempt %d" % self._attempt)
