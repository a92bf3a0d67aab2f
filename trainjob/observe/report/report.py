"""The figures of a run, computed from its folder alone: works on a copied folder, too."""

from __future__ import annotations

import math
import struct
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from operator import mul, sub
from typing import Any

from trainjob.contract import states
from trainjob.contract.paths import RunPaths
from trainjob.observe.report.goodput import Goodput, GoodputFacts, Trained, goodput
from trainjob.observe.report.ranks import Slowest, ranks, slowest
from trainjob.observe.report.series import Series
from trainjob.observe.report.startup import StartupFigures, startups
from trainjob.records import attempts, causes, checkpoints, events, metrics, profile, progress, software
from trainjob.records import job as jobs
from trainjob.records.events import Event
from trainjob.records.measures import PHASES
from trainjob.records.metrics import Intervals, MetricsLine
from trainjob.records.profile import RankProfile
from trainjob.records.submission import Submission


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
    startups: Sequence[StartupFigures] = ()  # of each attempt that made an update
    events: Sequence[Event] = ()
    checkpoint_bytes: int | None = None  # of the newest checkpoint, all its files
    profiles: Sequence[RankProfile] = ()
    checkpoints_written: int = 0  # over all attempts
    checkpoint_durable_s: float | None = None  # the longest time until one was on disk
    slowest_rank: Slowest | None = None  # of several ranks that have recorded their times
    printed: Sequence[str] = ()  # by a command: the newest lines that name figures, as they are
    damaged_lines: int = 0  # of metrics.jsonl, which are left out

    def as_json(self) -> dict[str, Any]:
        """Return the report for `--json`."""
        return {**asdict(self), "events": [event._asdict() for event in self.events]}


def slowest_checkpoint_s(paths: RunPaths) -> float:
    """Return the longest time that a checkpoint of the run took until it was on disk; 0 if it wrote none."""
    figures = Figures()
    metrics.Reader(paths).feed(figures)
    return figures.durable_s or 0.0


def report(paths: RunPaths, submission: Submission | None, curves: Series | None = None) -> Report:
    """Return the report of a run directory, submitted as `submission` says; None: that is not known, or not asked for.

    Its lines of metrics are added to `curves`, so that they are read once. Raises ContractError where there is no
    job.json.
    """
    record, figures, lines = jobs.read(paths.job), Figures(), metrics.Reader(paths)
    lines.feed(*([figures] if curves is None else [figures, curves]))
    state, differing = attempts.state(paths), software.difference(software.recorded(paths))
    last, held_out, end = figures.last, figures.held_out, figures.end
    epochs = max((one for one in (held_out, last) if one), key=lambda line: line.update, default=None)
    noted, newest = events.read(paths), checkpoints.newest(paths)
    files = None if newest is None else checkpoints.files_of(newest)
    container = record.request.cluster.file.get("container")
    seen = progress.read(paths)
    resumed_at = None if submission is None else submission.resumed_at
    facts = GoodputFacts(
        attempts=events.attempts(noted),
        trained=list(figures.trained()),
        evaluation_s=figures.evaluation_s,
        end_s=None if end is None else end.training_seconds,
        submitted_at=None if submission is None else submission.submitted_at,
        resumed=None if submission is None or resumed_at is None else (submission.attempt, resumed_at),
        heartbeat=seen.heartbeat,
        saved_update=(seen.durable_update or 0) if newest is None else checkpoints.update_of(newest),
    )
    has_image = isinstance(container, dict) and container.get("runtime") != "none"
    return Report(
        id=paths.id,
        folder=str(paths.folder),
        name=record.name,
        state=state,
        exit_code=attempts.exit_code(paths),
        attempts=attempts.current(paths),
        instances=record.plan.topology.instances,
        epochs=None if epochs is None else epochs.epoch,
        updates=None if last is None else last.update,
        loss=figures.loss,
        held_out_loss=None if held_out is None else held_out.loss,
        held_out_accuracy=None if held_out is None else held_out.accuracy,
        held_out_samples=None if held_out is None else held_out.samples,
        evaluations=figures.evaluations,
        samples_per_s=figures.rate(),
        seconds=figures.seconds(),
        cause=causes.of_run(paths) if state in (states.FAILED, states.LOST) else None,
        packages_differ=None if differing is None else str(differing),
        peak_memory_bytes=None if end is None else end.peak_memory_bytes,
        goodput=goodput(facts, state),
        startups=startups(noted, figures.startups, submission, has_image),
        events=noted,
        printed=seen.printed,
        damaged_lines=lines.damaged,
        slowest_rank=slowest(ranks(paths, record.plan.topology.instances)),
        checkpoint_bytes=None if files is None else sum(file.bytes for file in files.values()),
        profiles=profile.recorded(paths),
        checkpoints_written=figures.checkpoints,
        checkpoint_durable_s=figures.durable_s,
    )


class Figures:
    """The sums over the lines of metrics.jsonl: a resumed attempt repeats some updates, and the later line counts.

    Intervals of training are kept as bare numbers, because a long run has millions of them.
    """

    def __init__(self) -> None:
        self.evaluations = self.checkpoints = 0
        self.durable_s: float | None = None  # the longest time until a checkpoint was on disk
        self.evaluation_s: dict[int, float] = {}  # by attempt
        self.end: MetricsLine | None = None  # of the attempt that completed the run
        self.last: MetricsLine | None = None  # of training, of the latest update
        self.loss: float | None = None  # of the latest interval that has one: a command may end without another line
        self.held_out: MetricsLine | None = None  # the evaluation after the latest update
        self.startups: list[MetricsLine] = []
        self._updates = array("q")
        self._phases = [array("d") for _ in PHASES]
        self._seconds, self._samples = array("d"), array("d")
        self._is_in_order = True
        self._begun: list[tuple[MetricsLine, int]] = []  # the beginning of each attempt, and the intervals before it

    def add(self, line: MetricsLine) -> None:
        """Add one line of any kind."""
        if line.kind == "train":
            phases = [(line.phases.get(phase, 0.0),) for phase in PHASES]
            self._extend((line.update,), phases, (line.seconds,), ((line.samples_per_s or 0.0) * line.seconds,), line)
        elif line.kind == "evaluation":
            if self.held_out is None or line.update >= self.held_out.update:
                self.held_out = line
            self.evaluation_s[line.attempt] = self.evaluation_s.get(line.attempt, 0.0) + line.seconds
            self.evaluations += 1
        elif line.kind == "checkpoint":
            self.durable_s = max(self.durable_s or 0.0, line.durable_s or 0.0)
            self.checkpoints += 1
        elif line.kind == "begin":
            self._begun.append((line, len(self._updates)))
        elif line.kind == "startup":
            self.startups.append(line)
        elif line.kind == "end":
            self.end = line

    def extend(self, intervals: Intervals) -> None:
        """Add many intervals of training."""
        samples = [*map(mul, intervals.samples_per_s, intervals.seconds)]
        self._extend(intervals.updates, intervals.phases, intervals.seconds, samples, intervals.last)

    def _extend(
        self,
        updates: Sequence[int],
        phases: Sequence[Sequence[float]],
        seconds: Sequence[float],
        samples: Sequence[float],
        last: MetricsLine,
    ) -> None:
        latest = -1 if self.last is None else self.last.update
        if updates[0] <= latest:
            self._is_in_order = False
        self._updates.extend(updates)
        for column, content in zip(
            (*self._phases, self._seconds, self._samples), (*phases, seconds, samples), strict=True
        ):
            column.frombytes(struct.pack(f"{len(content)}d", *content))  # the fastest way into an array
        if updates[-1] >= latest:
            self.last = last
            self.loss = self.loss if last.loss is None else last.loss

    def trained(self) -> Iterator[Trained]:
        """Yield what each attempt has trained, in order."""
        ends = [first for _, first in self._begun[1:]] + [len(self._updates)]
        checkpoint_s = self._phases[PHASES.index("checkpoint")]
        for (begin, first), end in zip(self._begun, ends, strict=False):
            # Views: the copies of a long run's columns take as much memory as the columns.
            updates, seconds, checkpoints = (
                memoryview(column)[first:end] for column in (self._updates, self._seconds, checkpoint_s)
            )
            training = array("d", map(sub, seconds, checkpoints))
            yield Trained(begin.attempt, begin.time, begin.update, updates, training, math.fsum(checkpoints))

    def seconds(self) -> dict[str, float] | None:
        """Return the seconds of training by phase; None if no interval is divided, as those of a command are."""
        seconds = dict(zip(PHASES, map(self._total, self._phases), strict=True))
        return seconds if any(seconds.values()) else None

    def rate(self) -> float | None:
        """Return the samples per second of training; None if no interval has recorded any."""
        seconds = self._total(self._seconds)
        return (self._total(self._samples) / seconds or None) if seconds else None

    def _total(self, column: array[float]) -> float:
        if self._is_in_order:
            return math.fsum(column)
        last = {update: number for number, update in enumerate(self._updates)}
        return math.fsum(map(column.__getitem__, last.values()))
