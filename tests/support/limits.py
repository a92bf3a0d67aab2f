"""A limit on how long something in this process may take: what waits for ever on a pipe fails instead."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Raise TimeoutError in what runs inside once it has taken so long."""

    def ring(_signal: int, _frame: FrameType | None) -> None:
        raise TimeoutError(f"it took more than {seconds:g} s")

    before = signal.signal(signal.SIGALRM, ring)
    earlier = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, *earlier)
        signal.signal(signal.SIGALRM, before)
