"""What a run has done, computed from its folder alone: works on a copied folder, too."""

from __future__ import annotations

import math
import struct
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from operator import itemgetter, mul, sub
from typing import Any, TypeVar

from trainjob.contract import states
from trainjob.contract.paths import RunPaths
from trainjob.observe.report.goodput import Facts, Goodput, Trained, goodput
from trainjob.observe.report.predicted import Compared, Result, compare
from trainjob.observe.report.ranks import Slowest, ranks, slowest
from trainjob.observe.report.series import LATEST, Intervals, Series, add_lines
from trainjob.records import attempts, causes, checkpoints, events, profile, software
from trainjob.records import job as jobs
from trainjob.records.events import Event
from trainjob.records.files import JsonLines, read_json, read_number, read_word
from trainjob.records.measures import PHASES
from trainjob.records.profile import RankProfile


@dataclass(frozen=True)
class Report:
    """Figures of one run. `samples_per_s` and `seconds` cover training alone, over all attempts."""

    id: str
    folder: str
    name: str
    state: str | None
    exit_code: int | None
    attempts: int
    instances: int
    epochs: int | None
    updates: int | None
    loss: float | None  # of the last training interval
    held_out_loss: float | None
    held_out_accuracy: float | None
    held_out_samples: int | None
    evaluations: int
    samples_per_s: float | None
    seconds: Mapping[str, float] | None
    cause: causes.Cause | None = None  # why the run failed, where that is known
    packages_differ: str | None = None  # which hosts have other versions of Python, torch, CUDA, NCCL or driver
    peak_memory_bytes: int | None = None  # of rank 0's process, its libraries included
    goodput: Goodput | None = None  # None: it has not begun, or its folder does not say when it did
    events: Sequence[Event] = ()
    checkpoint_bytes: int | None = None  # of the newest checkpoint, all its files
    profiles: Sequence[RankProfile] = ()
    checkpoints_written: int = 0  # over all attempts
    checkpoint_durable_s: float | None = None  # the longest time until one was on disk
    predictions: Sequence[Compared] = ()  # of a complete run: what was predicted when it was submitted
    slowest_rank: Slowest | None = None  # of several ranks that have recorded their times
    damaged_lines: int = 0  # of metrics.jsonl, which are left out

    def as_json(self) -> dict[str, Any]:
        """Return the report for `--json`."""
        return {**asdict(self), "events": [event._asdict() for event in self.events]}


def report(paths: RunPaths, curves: Series | None = None) -> Report:
    """Return the report of a run directory; its lines of metrics are added to `curves`, so that they are read once.

    Raises ContractError where there is no job.json.
    """
    record = jobs.read(paths.job)
    figures = _figures(paths, curves)
    state, differing = read_word(paths.state), software.difference(software.recorded(paths))
    last, evaluated = figures.training.last, figures.held_out.last
    noted = events.read(paths)
    made = Report(
        id=paths.id,
        folder=str(paths.folder),
        name=record.name,
        state=state,
        exit_code=read_number(paths.exit_code),
        attempts=attempts.current(paths),
        instances=record.plan.topology.instances,
        epochs=_number(evaluated or last, "epoch", int),
        updates=_number(last, "update", int),
        loss=_number(last, "loss", float),
        held_out_loss=_number(evaluated, "loss", float),
        held_out_accuracy=_number(evaluated, "accuracy", float),
        held_out_samples=_number(evaluated, "samples", int),
        evaluations=figures.evaluations,
        samples_per_s=figures.training.rate(),
        seconds=figures.training.seconds(),
        cause=causes.of_run(paths) if state in (states.FAILED, states.LOST) else None,
        packages_differ=None if differing is None else str(differing),
        peak_memory_bytes=_number(figures.end, "peak_memory_bytes", int),
        goodput=goodput(_facts(paths, noted, figures), state),
        events=noted,
        damaged_lines=figures.damaged,
        slowest_rank=slowest(ranks(paths, record.plan.topology.instances)),
        checkpoint_bytes=_checkpoint_bytes(paths),
        profiles=profile.recorded(paths),
        checkpoints_written=figures.checkpoints,
        checkpoint_durable_s=figures.durable_s,
    )
    return replace(made, predictions=compare(paths, _result(made))) if state == states.COMPLETED else made


def _figures(paths: RunPaths, curves: Series | None) -> Figures:
    from pydantic_core import from_json

    figures = Figures()
    # Half the time of Python's own parser, which still takes the lines that this one refuses.
    lines = JsonLines(paths.metrics, from_json)
    for block in lines.blocks():
        add_lines(block, *([figures] if curves is None else [figures, curves]))
    figures.damaged += lines.damaged
    return figures


def _checkpoint_bytes(paths: RunPaths) -> int | None:
    newest = checkpoints.newest(paths)
    sizes = None if newest is None else checkpoints.sizes(newest)
    return None if sizes is None else sum(sizes.values())


def _result(made: Report) -> Result:
    seconds, updates = made.seconds, made.updates
    trained = None if seconds is None else sum(seconds[phase] for phase in PHASES if phase != "checkpoint")
    return Result(
        update_s=trained / updates if trained and updates else None,
        run_s=None if made.goodput is None else made.goodput.allocated_s,
        memory_bytes=made.peak_memory_bytes,
        checkpoint_bytes=made.checkpoint_bytes,
        attempts=made.attempts or None,
    )


def _facts(paths: RunPaths, noted: list[Event], figures: Figures) -> Facts:
    submission: Any = read_json(paths.submission) or read_json(paths.whole.submission)
    progress: Any = read_json(paths.progress)
    newest = checkpoints.newest(paths)
    return Facts(
        attempts=events.attempts(noted),
        trained=list(figures.training.attempts()),
        evaluation_s=figures.evaluation_s,
        end_s=_number(figures.end, "training_seconds", float),
        submitted_at=submission.get("submitted_at") if isinstance(submission, dict) else None,
        heartbeat=_number(progress, "heartbeat", float) if isinstance(progress, dict) else None,
        saved_update=0 if newest is None else checkpoints.update_of(newest),
    )


Number = TypeVar("Number", int, float)


def _number(line: Mapping[str, Any], key: str, kind: type[Number]) -> Number | None:
    value = line.get(key)
    try:
        return kind(value) if isinstance(value, (int, kind)) and not isinstance(value, bool) else None
    except OverflowError:  # a whole number that no float can hold
        return None


_of_phases = itemgetter(*PHASES)
_CHECKPOINT = PHASES.index("checkpoint")


class _Newest:
    """The line of the latest update of one kind; of several for the same update, the later line."""

    def __init__(self) -> None:
        self.last: Mapping[str, Any] = {}

    def add(self, line: Mapping[str, Any]) -> None:
        """Consider a line. Raises TypeError for one whose update is no number."""
        if type(line["update"]) is not int:
            raise TypeError(line["update"])
        if not self.last or line["update"] >= self.last["update"]:
            self.last = line


class _Training(_Newest):
    """Sums over the intervals of training: a resumed attempt repeats some updates, and the later line counts.

    Kept as bare numbers, because a long run has millions of intervals.
    """

    def __init__(self) -> None:
        super().__init__()
        self._updates = array("q")
        self._phases = [array("d") for _ in PHASES]
        self._seconds, self._samples = array("d"), array("d")
        self._is_in_order = True
        self._latest = -1
        self._attempts: list[tuple[int, int, float, int]] = []  # number, first update, time, intervals before it

    def begin(self, line: Mapping[str, Any]) -> None:
        """Note that an attempt begins. Raises LookupError, TypeError, ValueError for a damaged line."""
        attempt, update, at = int(line["attempt"]), int(line["update"]), float(line["time"])
        if not (abs(update) < LATEST and abs(at) < LATEST):  # NaN is below nothing
            raise ValueError(line)
        self._attempts.append((attempt, update, at, len(self._updates)))

    def attempts(self) -> Iterator[Trained]:
        """Yield what each attempt has trained, in order."""
        ends = [first for *_, first in self._attempts[1:]] + [len(self._updates)]
        for (number, update, at, first), end in zip(self._attempts, ends, strict=False):
            # Views: the copies of a long run's columns take as much memory as the columns.
            updates, seconds, checkpoints = (
                memoryview(column)[first:end] for column in (self._updates, self._seconds, self._phases[_CHECKPOINT])
            )
            training = array("d", map(sub, seconds, checkpoints))
            yield Trained(number, at, update, updates, training, math.fsum(checkpoints))

    def add(self, line: Mapping[str, Any]) -> None:
        """Add an interval. Raises LookupError, TypeError, AttributeError, struct.error for a damaged line."""
        update, by_phase = line["update"], line["seconds"]
        try:
            phases = _of_phases(by_phase)
        except KeyError:
            phases = tuple(by_phase.get(phase, 0.0) for phase in PHASES)
        seconds = sum(by_phase.values())
        figures = (*phases, seconds, (line["samples_per_s"] or 0.0) * seconds)
        if type(update) is not int:
            raise TypeError(update)
        self._extend((update,), [(figure,) for figure in figures], line)

    def extend(self, intervals: Intervals) -> None:
        """Add many intervals."""
        samples = [*map(mul, intervals.samples_per_s, intervals.seconds)]
        self._extend(intervals.updates, [*intervals.phases, intervals.seconds, samples], intervals.last)

    def _extend(self, updates: Sequence[int], figures: Sequence[Sequence[float]], last: Mapping[str, Any]) -> None:
        columns: Sequence[array[Any]] = (self._updates, *self._phases, self._seconds, self._samples)
        # All of them are packed before any is kept: a damaged line leaves the columns as they are.
        kinds = [f"{len(updates)}{column.typecode}" for column in columns]
        packed = [struct.pack(kind, *one) for kind, one in zip(kinds, (updates, *figures), strict=True)]
        for column, content in zip(columns, packed, strict=True):
            column.frombytes(content)
        if updates[0] <= self._latest:
            self._is_in_order = False
        if updates[-1] >= self._latest:
            self.last, self._latest = last, updates[-1]

    def seconds(self) -> dict[str, float] | None:
        """Return the seconds by phase; None before the first interval."""
        totals = map(self._total, self._phases)
        return dict(zip(PHASES, totals, strict=True)) if self._updates else None

    def rate(self) -> float | None:
        """Return the samples per second of training; None before the first interval."""
        seconds = self._total(self._seconds)
        return self._total(self._samples) / seconds if seconds else None

    def _total(self, column: array[float]) -> float:
        if self._is_in_order:
            return math.fsum(column)
        last = {update: number for number, update in enumerate(self._updates)}
        return math.fsum(map(column.__getitem__, last.values()))


class Figures:
    """What the lines of metrics.jsonl add up to, read in a stream; `damaged` counts the lines that can't be used."""

    def __init__(self) -> None:
        self.training, self.held_out = _Training(), _Newest()
        self.damaged = 0
        self.evaluations = self.checkpoints = 0
        self.durable_s: float | None = None  # the longest time until a checkpoint was on disk
        self.evaluation_s: dict[int, float] = {}  # by attempt
        self.end: Mapping[str, Any] = {}  # the line of the attempt that completed the run

    def extend(self, intervals: Intervals) -> None:
        """Add many intervals of training."""
        self.training.extend(intervals)

    def add(self, line: Mapping[str, Any]) -> None:
        """Add one line of any kind."""
        kind = line.get("kind")
        try:
            if kind == "train":
                self.training.add(line)
            elif kind == "evaluation":
                self.held_out.add(line)
                seconds = self.evaluation_s.get(line["attempt"], 0.0) + float(line.get("seconds") or 0.0)
                self.evaluation_s[line["attempt"]] = seconds
                self.evaluations += 1
            elif kind == "checkpoint":
                self.durable_s = max(self.durable_s or 0.0, float(line["durable_s"]))
                self.checkpoints += 1
            elif kind == "begin":
                self.training.begin(line)
            elif kind == "end":
                self.end = line
            elif not isinstance(kind, str):
                self.damaged += 1
        except (LookupError, TypeError, ValueError, AttributeError, OverflowError, struct.error):
            self.damaged += 1
