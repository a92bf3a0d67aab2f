"""metrics.jsonl as curves: a few bytes a line, and thinned without losing an extreme."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from statistics import quantiles
from struct import pack
from typing import NamedTuple

from trainjob.records.measures import PHASES
from trainjob.records.metrics import TRAINING, Intervals, MetricsLine

# Twice as many points as a wide drawing has pixels.
MOST_POINTS = 2000
MOST_STRETCHES = 120
Point = tuple[float, float]


class Columns:
    """Figures by update, in order. A line that is not beyond the last replaces what an earlier attempt had there."""

    def __init__(self, *names: str) -> None:
        self.updates = array("d")
        self._columns = {name: array("d") for name in names}

    def add(self, update: float, figures: Sequence[float | None]) -> None:
        """Add a line's figures, in the order of the names. One that is missing becomes NaN."""
        self.extend((update,), [(math.nan if figure is None else figure,) for figure in figures])

    def extend(self, updates: Sequence[float], columns: Sequence[Sequence[float]]) -> None:
        """Add lines of which each update comes after the one before it, column by column."""
        if self.updates and updates[0] <= self.updates[-1]:
            kept = bisect_left(self.updates, updates[0])
            for column in (self.updates, *self._columns.values()):
                del column[kept:]
        self.updates.extend(updates)
        for column, figures in zip(self._columns.values(), columns, strict=True):
            column.frombytes(pack(f"{len(figures)}d", *figures))  # the fastest way into an array

    def curve(self, name: str, most_points: int = MOST_POINTS) -> list[Point]:
        """Return a column as at most `most_points` points; each stretch keeps its lowest and its highest."""
        column = self._columns[name]
        each = max(1, -(-2 * len(column) // most_points))
        points = (self._extremes(column, start, start + each) for start in range(0, len(column), each))
        return [point for stretch in points for point in stretch]

    def _extremes(self, column: array[float], start: int, end: int) -> list[Point]:
        stretch = column[start:end]
        known = _finite(stretch)
        both = {start + stretch.index(choose(known)) for choose in (min, max) if known}
        return [(self.updates[place], column[place]) for place in sorted(both)]

    def values(self, name: str) -> Sequence[float]:
        """Return a column without what is missing."""
        return _finite(self._columns[name])

    def shares(self, names: Sequence[str]) -> Iterator[tuple[float, list[float]]]:
        """Yield the last update of each of MOST_STRETCHES stretches, and each column's percentage of their sum."""
        each = -(-len(self.updates) // MOST_STRETCHES) or 1
        columns = [self._columns[name] for name in names]
        for start in range(0, len(self.updates), each):
            stretch = slice(start, start + each)
            sums = [sum(_finite(column[stretch])) for column in columns]
            total = sum(sums)
            yield self.updates[stretch][-1], [100 * one / total if total else 0.0 for one in sums]


class Mark(NamedTuple):
    """The beginning of an attempt's training, or its stop on request. `at` is in seconds since 1970."""

    kind: str  # begin | stop
    attempt: int
    update: int
    at: float


@dataclass
class Series:
    """All that the drawings show of one run."""

    training: Columns = field(default_factory=lambda: Columns(*TRAINING, *PHASES))
    held_out: Columns = field(default_factory=lambda: Columns("loss", "accuracy"))
    attempts: dict[int, int] = field(default_factory=dict)  # attempt → the first update that it logged
    marks: list[Mark] = field(default_factory=list)
    newest: int = 0  # the last update that any attempt has logged
    repeated_updates: int = 0  # trained again after an interruption

    def add(self, line: MetricsLine) -> None:
        """Add a line of metrics.jsonl."""
        if line.kind == "train":
            self._note(line.attempt, line.update, line.update)
            figures = (line.loss, line.accuracy, line.learning_rate, line.samples_per_s)
            self.training.add(line.update, (*figures, *map(line.phases.get, PHASES)))
        elif line.kind == "evaluation":
            self.held_out.add(line.update, (line.loss, line.accuracy))
        elif line.kind in ("begin", "stop"):
            self.marks.append(Mark(line.kind, line.attempt, line.update, line.time))

    def extend(self, intervals: Intervals) -> None:
        """Add many lines of training."""
        self._note(intervals.attempt, intervals.updates[0], intervals.updates[-1])
        self.training.extend(intervals.updates, [*intervals.training, *intervals.phases])

    def _note(self, attempt: int, first: int, last: int) -> None:
        if attempt not in self.attempts:
            self.attempts[attempt] = first
            self.repeated_updates += max(0, self.newest - first)
        self.newest = max(self.newest, last)

    def speed(self) -> tuple[float, float, float] | None:
        """Return the 5 %, 50 % and 95 % quantiles of samples/s over the logging intervals; None with fewer than two."""
        rates = self.training.values("samples_per_s")
        if len(rates) < 2:
            return None
        twentieths = quantiles(rates, n=20, method="inclusive")
        return twentieths[0], twentieths[9], twentieths[18]


def _finite(figures: Sequence[float]) -> Sequence[float]:
    return figures if math.isfinite(sum(figures)) else [*filter(math.isfinite, figures)]
