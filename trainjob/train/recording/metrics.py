"""Writes metrics.jsonl: one object per logging point. Times are rank 0's, by phase, and add up to the interval's."""

from __future__ import annotations

import contextlib
import resource
import threading
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional

from trainjob.contract import clock
from trainjob.contract.paths import RunPaths
from trainjob.records.measures import PHASES, RankTimes, append_times
from trainjob.records.metrics import Writer
from trainjob.train.recording.startup import Startup

# Between two lines of a rank's times: of thousands of ranks, all on one file system.
_TIMES_EVERY_S = 10.0


class Phases:
    """Seconds of an interval by phase. Time not measured as another phase counts as compute, our own loop included."""

    def __init__(self, communication: Callable[[], float]) -> None:
        self._communication = communication  # seconds since the start
        self.training_seconds = 0.0  # over all intervals, without evaluation
        self._reset()

    def _reset(self) -> None:
        self._start = clock.monotonic()
        self._communication_before = self._communication()
        self.data = self.checkpoint = self.aside = 0.0

    def training_seconds_until_now(self) -> float:
        """Return the seconds of training so far, including the current interval."""
        return self.training_seconds + clock.monotonic() - self._start - self.aside

    def close(self) -> Dict[str, float]:
        """Return the seconds of the interval that ends now, and start the next."""
        whole = clock.monotonic() - self._start - self.aside
        communication = self._communication() - self._communication_before
        compute = max(0.0, whole - self.data - communication - self.checkpoint)
        seconds = dict(zip(PHASES, (self.data, compute, communication, self.checkpoint)))
        self.training_seconds += whole
        self._reset()
        return seconds


def peak_memory_bytes() -> int:
    """Return the most memory that this process has had in RAM so far, its libraries included."""
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


class Means:
    """Running means of loss and metrics over updates."""

    def __init__(self) -> None:
        self.updates = 0
        self._loss = 0.0
        self._metrics: Dict[str, float] = {}

    def add(self, losses: List[float], metrics: List[Dict[str, float]]) -> None:
        """Include the updates of a block: the loss and the metrics of each."""
        for loss, values in zip(losses, metrics):
            self.updates += 1
            self._loss += loss
            for name, value in values.items():
                self._metrics[name] = self._metrics.get(name, 0.0) + value

    def columns(self) -> Dict[str, Any]:
        """Return the means in the form of a line of metrics.jsonl."""
        means = {name: value / self.updates for name, value in self._metrics.items()}
        return columns(self._loss / self.updates, means)


def columns(loss: float, metrics: Dict[str, float]) -> Dict[str, Any]:
    """Return loss and metrics in the form of a line of metrics.jsonl."""
    others = {name: value for name, value in metrics.items() if name != "accuracy"}
    shown: Dict[str, Any] = {"loss": loss, "accuracy": metrics.get("accuracy")}
    return dict(shown, metrics=others) if others else shown


class Times:
    """The time of this rank by phase, in a separate file: a line every few seconds, and one at the end."""

    def __init__(self, paths: RunPaths, rank: int, attempt: int) -> None:
        self._paths, self._rank, self._attempt = paths, rank, attempt
        self._update = self._written = 0
        self._seconds = dict.fromkeys(PHASES, 0.0)

    def begin(self, update: int) -> None:
        """Note that the attempt continues from `update`."""
        self._update = self._written = update

    def add(self, update: int, seconds: Dict[str, float]) -> None:
        """Add the interval that ends with `update`. Raises OSError."""
        self._update = update
        for name, value in seconds.items():
            self._seconds[name] += value
        if sum(self._seconds.values()) >= _TIMES_EVERY_S:
            self.flush()

    def flush(self) -> None:
        """Write what no line has yet. Raises OSError."""
        seconds, self._seconds = self._seconds, dict.fromkeys(PHASES, 0.0)
        updates, self._written = self._update - self._written, self._update
        if updates:
            rounded = {name: round(value, 6) for name, value in seconds.items()}
            append_times(self._paths, self._rank, RankTimes(self._attempt, self._update, updates, rounded))


class Recorder:
    """Averages the outcomes of updates and writes one line per interval. Only rank 0 writes, but for `times`."""

    def __init__(
        self,
        paths: RunPaths,
        attempt: int,
        writes: bool,
        warn: Callable[[str], None],
        startup: Startup,
        times: Optional[Times] = None,
    ) -> None:
        self.startup = startup
        self._times = times
        self._lines = Writer(paths, attempt)
        self._lock = threading.Lock()
        self._writes = writes
        self._warn = warn
        self.interval = Means()
        self.epoch = Means()

    def note(self, losses: List[float], metrics: List[Dict[str, float]]) -> None:
        """Add the updates of a block to the interval and the epoch: the loss and the metrics of each."""
        self.interval.add(losses, metrics)
        self.epoch.add(losses, metrics)

    def end_epoch(self) -> Means:
        """Return the means of the epoch that ends, and start the next."""
        ended, self.epoch = self.epoch, Means()
        return ended

    def begin_line(self, epoch: int, update: int) -> None:
        """Write the first line of an attempt, which continues from `update`: training starts now."""
        self._line("begin", epoch, update, {"time": round(clock.time(), 3)})
        if self._times is not None:
            self._times.begin(update)

    def block_made(self, epoch: int, update: int, seconds: float) -> None:
        """Note that a block took `seconds`; write the line of the attempt's start-up once it is known."""
        self._startup_line(epoch, update, self.startup.block_made(seconds))

    def _startup_line(self, epoch: int, update: int, figures: Optional[Mapping[str, object]]) -> None:
        if figures is not None:
            self._line("startup", epoch, update, figures)

    def train_line(self, epoch: int, update: int, samples: int, rate: float, seconds: Dict[str, float]) -> None:
        """Write the line of the interval that ends with `update`: `samples` were trained in `seconds`."""
        ended, self.interval = self.interval, Means()
        whole = sum(seconds.values())
        values = dict(
            ended.columns(),
            samples_per_s=round(samples / whole, 1) if whole else None,
            learning_rate=rate,
            seconds={name: round(value, 6) for name, value in seconds.items()},
        )
        self._line("train", epoch, update, values)
        if self._times is not None:
            with self._without_harm():
                self._times.add(update, seconds)

    def evaluation_line(
        self, epoch: int, update: int, loss: float, metrics: Dict[str, float], samples: int, seconds: float
    ) -> None:
        """Write the line of an evaluation after `update`."""
        values = dict(columns(loss, metrics), samples=samples, seconds=round(seconds, 6))
        self._line("evaluation", epoch, update, values)

    def checkpoint_line(self, epoch: int, update: int, stood_still_s: float, durable_s: float) -> None:
        """Write the line of a durable checkpoint: how long training stood still, and how long until it was on disk."""
        values = {"stood_still_s": round(stood_still_s, 6), "durable_s": round(durable_s, 6)}
        self._line("checkpoint", epoch, update, values)

    def stop_line(self, epoch: int, update: int) -> None:
        """Write the last line of an attempt that stopped on request, once its checkpoint is durable."""
        self._line("stop", epoch, update, {"time": round(clock.time(), 3)})

    def end_line(self, epoch: int, update: int, training_seconds: float) -> None:
        """Write the last line of an attempt that made all its updates."""
        values = {"training_seconds": round(training_seconds, 6), "peak_memory_bytes": peak_memory_bytes()}
        self._line("end", epoch, update, values)

    def ended(self, epoch: int, update: int) -> None:
        """Write what is left of this rank's times: the attempt ends here."""
        self._startup_line(epoch, update, self.startup.figures())
        if self._times is not None:
            with self._without_harm():
                self._times.flush()

    def close(self) -> None:
        """Close the file."""
        self._lines.close()

    @contextlib.contextmanager
    def _without_harm(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self._warn("WARNING: a line of this rank's times was not written: %s" % error)

    def _line(self, kind: str, epoch: int, update: int, values: Mapping[str, object]) -> None:
        if not self._writes:
            return
        try:
            with self._lock:  # checkpoints are written by another thread
                self._lines.append(kind, epoch, update, values)
        except OSError as error:
            self._warn("WARNING: a line of metrics.jsonl was not written: %s" % error)


def accuracy_text(accuracy: Optional[float]) -> str:
    """Return an accuracy for a line of the log, such as "  accuracy 97.50 %"; nothing if there is none."""
    return "" if accuracy is None else "  accuracy %.2f %%" % (100 * accuracy)
