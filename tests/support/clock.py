"""Time that passes only when it is told to, or when something sleeps."""

from __future__ import annotations

import pytest

from trainjob.contract import clock


class Clock:
    """Stands for `trainjob.contract.clock`."""

    def __init__(self) -> None:
        self.now = 1.75e9

    def time(self) -> float:
        """Return the seconds since 1970."""
        return self.now

    monotonic = time


def sleeps_skipped(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Have each sleep take no time and count as its seconds; return them as they come."""
    slept_s: list[float] = []
    monkeypatch.setattr(clock, "sleep", slept_s.append)
    monkeypatch.setattr(clock, "monotonic", lambda: sum(slept_s))
    return slept_s
