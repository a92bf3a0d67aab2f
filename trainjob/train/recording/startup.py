"""Where the time goes until the first update is made, as rank 0 measures it."""

from __future__ import annotations

from typing import Any, Dict, Mapping, Optional

from trainjob.contract import clock, environment


class Startup:
    """The seconds from the launcher's beginning to the end of the first block of updates, part by part."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._seconds: Dict[str, float] = {}
        self._since = clock.time()
        self._ended_at: Optional[float] = None
        self._first_block_s: Optional[float] = None  # None: not yet made, or no longer of interest
        times = environment.started(environ)
        if times is not None:
            began, self._since = times
            self._seconds["launcher"] = max(0.0, self._since - began)

    def end(self, part: str) -> None:
        """Note that `part` ends now, which began when the part before it ended."""
        if self._ended_at is None:
            now = clock.time()
            self._seconds[part] = self._seconds.get(part, 0.0) + max(0.0, now - self._since)
            self._since = now

    def block_made(self, seconds: float) -> Optional[Mapping[str, Any]]:
        """Note that a block took `seconds`, and return the figures once it is the second one.

        What the first took longer, it has compiled, chosen kernels, or reserved memory.
        """
        if self._ended_at is None:
            self.end("first update")
            self._ended_at, self._first_block_s = self._since, seconds
            return None
        return self.figures(seconds)

    def figures(self, usual_s: Optional[float] = None) -> Optional[Mapping[str, Any]]:
        """Return the figures of a start-up, once; `usual_s`: of a block, if known."""
        if self._ended_at is None or self._first_block_s is None:
            return None
        if usual_s is not None:
            self._seconds["compile"] = min(self._seconds["first update"], max(0.0, self._first_block_s - usual_s))
            self._seconds["first update"] -= self._seconds["compile"]
        self._first_block_s = None
        seconds = {part: round(value, 3) for part, value in self._seconds.items()}
        return {"time": round(self._ended_at, 3), "seconds": seconds}
