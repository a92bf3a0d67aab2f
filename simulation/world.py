"""One simulated world: virtual time, events in an order that follows from the seed, and what has happened."""

from __future__ import annotations

import heapq
import itertools
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple


class Event(NamedTuple):
    """One line of a history, in virtual seconds."""

    at: float
    who: str
    what: str
    detail: str

    def __str__(self) -> str:
        return f"{self.at:9.2f}  {self.who:<12} {self.what}{f'  {self.detail}' if self.detail else ''}"


class World:
    """Virtual time and the events in it. `calm_at`: from then on nothing goes wrong any more."""

    def __init__(self, seed: int, folder: Path, calm_at: float) -> None:
        self.seed = seed
        self.folder = folder
        self.calm_at = calm_at
        self.now = 0.0
        # Files get real times, which virtual ones should be near: what has an age has it in virtual time.
        self.epoch = float(int(time.time()))
        self.history: list[Event] = []
        self.violations: list[str] = []
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._moments: list[tuple[str, int, float, Callable[[], None]]] = []

    def random(self, what: str) -> random.Random:
        """Return a stream of random numbers of its own for `what`, so that one more draw elsewhere moves nothing."""
        return random.Random(f"{self.seed}/{what}")

    @property
    def is_calm(self) -> bool:
        """Whether nothing goes wrong any more."""
        return self.now >= self.calm_at

    def after(self, delay_s: float, do: Callable[[], None]) -> None:
        """Call `do` after `delay_s` virtual seconds."""
        heapq.heappush(self._queue, (self.now + delay_s, next(self._order), do))

    def when(self, line: str, number: int, delay_s: float, do: Callable[[], None]) -> None:
        """Call `do` when a line that begins with `line` has come for the `number`th time, and `delay_s` later."""
        self._moments.append((line, number, delay_s, do))

    def note(self, who: str, what: str, detail: object = "") -> None:
        """Add a line to the history."""
        # The folder has another name in every process.
        shown = str(detail).replace(str(self.folder), "…")[:160]
        self.history.append(Event(self.now, who, what, shown))
        text, waiting = f"{what} {shown}", self._moments
        self._moments = [one for one in waiting if not text.startswith(one[0])]
        for line, number, delay_s, do in waiting:
            if text.startswith(line) and number > 1:
                self._moments.append((line, number - 1, delay_s, do))
            elif text.startswith(line):
                self.after(delay_s, do)

    def violate(self, rule: str, detail: str) -> None:
        """Note that an invariant does not hold."""
        self.note("checker", f"VIOLATION {rule}", detail)
        self.violations.append(f"{rule}: {detail}")

    def run(self, until: Callable[[], bool] = lambda: False, limit_s: float = float("inf")) -> None:
        """Let events happen in their order until `until`, or none is left within `limit_s` virtual seconds."""
        end = self.now + limit_s
        while not until() and self._queue and self._queue[0][0] <= end:
            at, _, do = heapq.heappop(self._queue)
            self.now = max(self.now, at)
            do()
        if not until() and limit_s != float("inf"):
            self.now = max(self.now, end)
