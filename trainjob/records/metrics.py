"""metrics.jsonl: a line for each logging point of training, evaluation, checkpoint, and beginning or end of an attempt.

A run has millions of lines of training. As a rank writes them, they are read in columns, which takes half the time.
"""

from __future__ import annotations

import math
from itertools import chain
from operator import itemgetter, lt
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Protocol, Sequence, Tuple

from trainjob.contract.paths import RunPaths
from trainjob.records.files import DamagedError, JsonLines, LineWriter, read_json_lines
from trainjob.records.measures import PHASES

KINDS = ("begin", "startup", "train", "evaluation", "checkpoint", "stop", "end")
# The figures of a line of training, in the order of the columns.
TRAINING = ("loss", "accuracy", "learning_rate", "samples_per_s")
# Larger values come from damaged files.
_LATEST_UPDATE, _LATEST_S, _LARGEST = 1 << 50, 1e11, 1e300
_of_interval = itemgetter("attempt", "update", *TRAINING, "seconds")
_of_phases = itemgetter(*PHASES)


class MetricsLine(NamedTuple):
    """One line. A figure that its kind does not have, or that is no number, is None."""

    kind: str  # one of KINDS
    attempt: int
    update: int
    number: int  # counted from 1 over the lines that hold a JSON object
    epoch: Optional[int] = None
    loss: Optional[float] = None
    accuracy: Optional[float] = None
    learning_rate: Optional[float] = None
    samples_per_s: Optional[float] = None
    samples: Optional[int] = None  # of an evaluation
    phases: Mapping[str, float] = {}  # seconds of an interval of training; of a start-up, by part
    seconds: float = 0.0  # of an interval of training, all phases; of an evaluation
    metrics: Mapping[str, float] = {}  # further means, by name
    time: float = 0.0  # since 1970: of `begin` and `stop`; of a start-up its end, with the first update
    durable_s: Optional[float] = None  # until a checkpoint was on disk
    training_seconds: Optional[float] = None  # of the attempt that completed the run
    peak_memory_bytes: Optional[int] = None  # of rank 0's process in that attempt


class Intervals(NamedTuple):
    """Training of one attempt, column by column: each update comes after the one before it."""

    attempt: int
    updates: Tuple[int, ...]
    training: Sequence[Sequence[float]]  # one column for each of TRAINING; NaN where there is no number
    phases: Sequence[Sequence[float]]  # one column for each of PHASES
    seconds: Sequence[float]  # of all phases, ours and others
    last: MetricsLine  # of the last update

    @property
    def samples_per_s(self) -> Sequence[float]:
        """The speed of each interval."""
        return self.training[TRAINING.index("samples_per_s")]


class Consumer(Protocol):
    """Something that adds up or keeps the lines."""

    def add(self, line: MetricsLine, /) -> None:
        """Add one line of any kind."""

    def extend(self, intervals: Intervals, /) -> None:
        """Add many lines of training."""


class Reader:
    """The lines of a run, read on as the file grows. `damaged` counts those that can't be used."""

    def __init__(self, paths: RunPaths) -> None:
        self._objects = JsonLines(paths.metrics)
        self._damaged = 0
        self.count = 0  # of all lines that hold a JSON object, damaged ones included

    @property
    def damaged(self) -> int:
        """The number of lines that were left out because they are damaged."""
        return self._damaged + self._objects.damaged

    def new(self) -> Iterator[MetricsLine]:
        """Yield the lines added since the last call. Those of a kind that this version does not know are left out."""
        for block in self._objects.blocks():
            yield from self._lines(block)

    def feed(self, *consumers: Consumer) -> None:
        """Add the lines since the last call to the consumers, as columns where possible."""
        for block in self._objects.blocks():
            intervals, others = in_columns(block)
            lines = list(self._lines(others))
            self.count += len(block) - len(others)
            for consumer in consumers:
                if intervals is not None:
                    consumer.extend(intervals)
                for line in lines:
                    consumer.add(line)

    def _lines(self, objects: Sequence[Mapping[str, object]]) -> Iterator[MetricsLine]:
        for fields in objects:
            self.count += 1
            try:
                line = parse(fields, self.count)
            except DamagedError:
                self._damaged += 1
            else:
                if line.kind in KINDS:
                    yield line


def parse(fields: Mapping[str, object], number: int = 0) -> MetricsLine:
    """Return the line with these fields. Raises DamagedError unless it has what all lines of its kind have."""
    kind, seconds = fields.get("kind"), fields.get("seconds", {})
    if isinstance(kind, str) and kind not in KINDS:
        return MetricsLine(kind, 0, 0, number)
    attempt, update = _whole(fields.get("attempt", 0)), _whole(fields.get("update"))
    if not isinstance(kind, str) or attempt is None or update is None or abs(update) >= _LATEST_UPDATE:
        raise DamagedError("kind is %r, attempt %r, update %r" % (kind, fields.get("attempt"), fields.get("update")))
    phases, time = _numbers(seconds), _number(fields.get("time"))
    if kind in ("startup", "train") and (not isinstance(seconds, dict) or len(phases) < len(seconds)):
        raise DamagedError("seconds is %r, expected numbers by phase" % (seconds,))
    if kind in ("begin", "startup", "stop") and (time is None or not 0 <= time < _LATEST_S):
        raise DamagedError("time is %r, expected seconds since 1970" % fields.get("time"))
    return MetricsLine(
        kind,
        attempt,
        update,
        number,
        epoch=_whole(fields.get("epoch")),
        loss=_number(fields.get("loss")),
        accuracy=_number(fields.get("accuracy")),
        learning_rate=_number(fields.get("learning_rate")),
        samples_per_s=_number(fields.get("samples_per_s")),
        samples=_whole(fields.get("samples")),
        phases=phases,
        seconds=sum(phases.values()) if kind == "train" else _number(seconds) or 0.0,
        metrics=_numbers(fields.get("metrics")),
        time=time or 0.0,
        durable_s=_number(fields.get("durable_s")),
        training_seconds=_number(fields.get("training_seconds")),
        peak_memory_bytes=_whole(fields.get("peak_memory_bytes")),
    )


def _number(value: object) -> Optional[float]:
    """Return a number as a float; None for anything else. A bool is an int to Python, and no figure to a reader."""
    if type(value) is float:
        return value
    return float(value) if type(value) is int and abs(value) < _LARGEST else None


def _whole(value: object) -> Optional[int]:
    return value if type(value) is int else None


def _numbers(values: object) -> Dict[str, float]:
    listed = values.items() if isinstance(values, dict) else ()
    return {name: number for name, value in listed if (number := _number(value)) is not None}


def in_columns(
    lines: Sequence[Mapping[str, object]],
) -> Tuple[Optional[Intervals], Sequence[Mapping[str, Any]]]:
    """Return the training lines as columns, and the other lines, which must be parsed one by one."""
    kinds = [line.get("kind") for line in lines]
    if "begin" in kinds:  # what comes before it belongs to another attempt
        return None, lines
    training, others = lines, []
    if kinds.count("train") < len(kinds):
        training = [line for line in lines if line.get("kind") == "train"]
        others = [line for line in lines if line.get("kind") != "train"]
    intervals = _intervals(training)
    return (None, lines) if intervals is None else (intervals, others)


def _intervals(lines: Sequence[Mapping[str, object]]) -> Optional[Intervals]:
    """Return lines of training as columns; None if they are not all as a rank writes them, one after the other."""
    try:
        attempts, updates, *training, seconds = zip(*map(_of_interval, lines))
        phases = [*zip(*map(_of_phases, seconds))]
        whole = [*map(sum, map(dict.values, seconds))]
        last = parse(lines[-1])
    except (LookupError, TypeError, ValueError):  # no lines, or one that lacks something
        return None
    # Most columns hold nothing but floats, and a set of their types is the cheapest way to see it.
    columns = [
        column
        if {*map(type, column)} == {float}
        else [math.nan if (number := _number(value)) is None else number for value in column]
        for column in training
    ]
    intervals = Intervals(attempts[0], updates, columns, phases, whole, last)
    is_usual = (
        {*map(type, chain(attempts, updates))} == {int}
        and attempts.count(attempts[0]) == len(attempts)
        and all(map(lt, updates, updates[1:]))
        and -_LATEST_UPDATE < updates[0] <= updates[-1] < _LATEST_UPDATE
        and intervals.samples_per_s is training[TRAINING.index("samples_per_s")]
        and {*map(type, chain(whole, *phases))} == {float}
    )
    return intervals if is_usual else None


def read(paths: RunPaths) -> Iterator[MetricsLine]:
    """Yield the lines of a run."""
    return Reader(paths).new()


def raw(paths: RunPaths) -> List[Dict[str, Any]]:
    """Return the objects of a run's lines as they are, with what this version does not know."""
    return list(read_json_lines(paths.metrics))


class Writer:
    """Appends the lines of one attempt."""

    def __init__(self, paths: RunPaths, attempt: int) -> None:
        self._lines = LineWriter(paths.metrics)
        self._attempt = attempt

    def append(self, kind: str, epoch: Optional[int], update: int, values: Mapping[str, object]) -> None:
        """Append one line. Raises OSError."""
        self._lines.append({"kind": kind, "attempt": self._attempt, "epoch": epoch, "update": update, **values})

    def close(self) -> None:
        """Close the file."""
        self._lines.close()
