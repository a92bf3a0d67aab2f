"""metrics.jsonl as curves: read once, a few bytes a line, and thinned without losing an extreme."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from operator import itemgetter, lt
from statistics import quantiles
from struct import pack
from typing import Any, NamedTuple, Protocol

from trainjob.records.measures import PHASES

# Twice as many points as a wide drawing has pixels.
MOST_POINTS = 2000
MOST_STRETCHES = 120
LATEST = 1 << 50  # update, or second since 1970
Point = tuple[float, float]
_TRAINING = ("loss", "accuracy", "learning_rate", "samples_per_s")
_EVALUATION = ("loss", "accuracy")
_SPEED = _TRAINING.index("samples_per_s")
_KINDS = ("train", "begin", "evaluation", "checkpoint", "stop", "end")
_LATEST_S = 1e11  # a time beyond is damage
_of_phases = itemgetter(*PHASES)
_of_interval = itemgetter("attempt", "update", *_TRAINING, "seconds")
_FLOATS = {float}


class Intervals(NamedTuple):
    """Training of one attempt, column by column: each update comes after the one before it."""

    attempt: int
    updates: tuple[int, ...]
    training: Sequence[Sequence[float]]  # one column for each of _TRAINING; NaN where there is no number
    phases: Sequence[Sequence[float]]  # one column for each of PHASES
    seconds: Sequence[float]  # of all phases, ours and others
    last: Mapping[str, Any]  # the line of the last update

    @property
    def samples_per_s(self) -> Sequence[float]:
        """The speed of each interval."""
        return self.training[_SPEED]


class Reader(Protocol):
    """What adds up or keeps the lines of metrics.jsonl."""

    def add(self, line: Mapping[str, Any], /) -> None:
        """Add one line of any kind."""

    def extend(self, intervals: Intervals, /) -> None:
        """Add many lines of training."""


def add_lines(lines: Sequence[Mapping[str, Any]], *readers: Reader) -> None:
    """Add some lines of metrics.jsonl to the readers.

    A run has millions of lines of training. Where they are as a rank writes them, columns take half the time.
    """
    intervals, others = in_columns(lines)
    for reader in readers:
        if intervals is not None:
            reader.extend(intervals)
        for line in others:
            reader.add(line)


def in_columns(lines: Sequence[Mapping[str, Any]]) -> tuple[Intervals | None, Sequence[Mapping[str, Any]]]:
    """Return the training lines as columns, and the other lines, which must be added one by one."""
    kinds = [line.get("kind") for line in lines]
    if "begin" in kinds:  # what comes before it belongs to another attempt
        return None, lines
    training = lines
    others: Sequence[Mapping[str, Any]] = ()
    if kinds.count("train") < len(kinds):
        training = [line for line, kind in zip(lines, kinds, strict=True) if kind == "train"]
        others = [line for line, kind in zip(lines, kinds, strict=True) if kind != "train"]
    intervals = _intervals(training)
    return (None, lines) if intervals is None else (intervals, others)


def _intervals(lines: Sequence[Mapping[str, Any]]) -> Intervals | None:
    try:
        attempts, updates, *training, seconds = zip(*map(_of_interval, lines), strict=True)
        phases = [*zip(*map(_of_phases, seconds), strict=True)]
        whole = [*map(sum, map(dict.values, seconds))]
    except (LookupError, TypeError, ValueError):  # no lines, or one that lacks something
        return None
    intervals = Intervals(attempts[0], updates, [*map(_numbers, training)], phases, whole, lines[-1])
    is_usual = (
        {*map(type, chain(attempts, updates))} == {int}
        and attempts.count(attempts[0]) == len(attempts)
        and all(map(lt, updates, updates[1:]))
        and -LATEST < updates[0] <= updates[-1] < LATEST
        and intervals.samples_per_s is training[_SPEED]
        and {*map(type, chain(whole, *phases))} == _FLOATS
    )
    return intervals if is_usual else None


class Columns:
    """Figures by update, in order. A line that is not beyond the last replaces what an earlier attempt had there."""

    def __init__(self, *names: str) -> None:
        self.updates = array("d")
        self._columns = {name: array("d") for name in names}

    def add(self, update: float, figures: Sequence[Any]) -> None:
        """Add a line's figures, in the order of the names. One that is no number becomes NaN: missing."""
        self.extend((update,), [_numbers((figure,)) for figure in figures])

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
    """Where an attempt began to train, or stopped on request. `at` is in seconds since 1970."""

    kind: str  # begin | stop
    attempt: int
    update: int
    at: float


@dataclass
class Series:
    """All that the drawings show of one run."""

    training: Columns = field(default_factory=lambda: Columns(*_TRAINING, *PHASES))
    held_out: Columns = field(default_factory=lambda: Columns(*_EVALUATION))
    attempts: dict[int, int] = field(default_factory=dict)  # attempt → the first update that it logged
    marks: list[Mark] = field(default_factory=list)
    newest: int = 0  # the last update that any attempt has logged
    repeated_updates: int = 0  # trained again after an interruption
    damaged: int = 0  # lines that lack what a line of their kind has

    def add(self, line: Mapping[str, Any]) -> None:
        """Add a line of metrics.jsonl."""
        update, kind = line.get("update"), line.get("kind")
        if type(update) is not int or abs(update) >= LATEST or kind not in _KINDS:
            self.damaged += 1
        elif kind == "train":
            self._note(line.get("attempt"), update, update)
            seconds: Any = line.get("seconds")
            phases = seconds.get if isinstance(seconds, dict) else {}.get
            self.training.add(update, (*map(line.get, _TRAINING), *map(phases, PHASES)))
        elif kind == "evaluation":
            self.held_out.add(update, [*map(line.get, _EVALUATION)])
        elif kind in ("begin", "stop"):
            self._mark(kind, update, line)

    def _mark(self, kind: str, update: int, line: Mapping[str, Any]) -> None:
        attempt, at = line.get("attempt"), _number(line.get("time"))
        if isinstance(attempt, int) and 0 <= at < _LATEST_S:
            self.marks.append(Mark(kind, attempt, update, at))
        else:
            self.damaged += 1

    def extend(self, intervals: Intervals) -> None:
        """Add many lines of training."""
        updates = intervals.updates
        self._note(intervals.attempt, updates[0], updates[-1])
        self.training.extend(updates, [*intervals.training, *intervals.phases])

    def _note(self, attempt: Any, first: int, last: int) -> None:
        if isinstance(attempt, int) and attempt not in self.attempts:
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


def series(lines: Iterable[Mapping[str, Any]]) -> Series:
    """Return the curves of the lines of a metrics.jsonl. A line that is damaged is counted and passed over."""
    series = Series()
    for line in lines:
        series.add(line)
    return series


def _finite(figures: Sequence[float]) -> Sequence[float]:
    return figures if math.isfinite(sum(figures)) else [*filter(math.isfinite, figures)]


def _numbers(figures: Sequence[Any]) -> Sequence[float]:
    # Most columns hold nothing but floats, and a set of their types is the cheapest way to see it.
    return figures if {*map(type, figures)} == _FLOATS else [*map(_number, figures)]


def _number(value: Any) -> float:
    if type(value) is float:
        return value
    # A bool is an int to Python, and no figure to a reader.
    is_number = isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1e300
    return float(value) if is_number else math.nan
