"""Asks again and again until something is so."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

# Below the 400 s of a whole test, whose end would not say what was waited for.
LIMIT_S = 200.0


def until(found: Callable[[], Any], what: str, limit_s: float = LIMIT_S, poll_s: float = 0.03) -> Any:
    """Return the first true answer of `found`. `poll_s`: longer where a look starts processes, which take the cores."""
    deadline = time.monotonic() + limit_s
    while not (answer := found()):
        assert time.monotonic() < deadline, f"{what}: not within {limit_s:.0f} s"
        time.sleep(poll_s)
    return answer
