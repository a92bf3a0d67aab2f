"""metrics.jsonl: one object a logging point. Times are of rank 0, by phase, and add up to the interval's."""

from __future__ import annotations

import errno
import json
import os
import time
from pathlib import Path
from typing import Any, BinaryIO, Callable, Dict, Optional

from trainjob.contract.files import append_json_line
from trainjob.contract.paths import RunPaths
from trainjob.train.engines.base import Outcome

PHASES = ("data", "compute", "communication", "checkpoint")


class Phases:
    """Seconds of an interval by phase. What is not measured as another phase is compute: steps, and our own loop."""

    def __init__(self, communication: Callable[[], float]) -> None:
        self._communication = communication  # seconds since the start
        self.training_seconds = 0.0  # of all intervals, without evaluation
        self._reset()

    def _reset(self) -> None:
        self._start = time.perf_counter()
        self._communication_before = self._communication()
        self.data = self.checkpoint = self.aside = 0.0

    def training_seconds_until_now(self) -> float:
        """Return the seconds of training so far, the present interval included."""
        return self.training_seconds + time.perf_counter() - self._start - self.aside

    def close(self) -> Dict[str, float]:
        """Return the seconds of the interval that ends now, and begin the next."""
        whole = time.perf_counter() - self._start - self.aside
        communication = self._communication() - self._communication_before
        compute = max(0.0, whole - self.data - communication - self.checkpoint)
        seconds = {"data": self.data, "compute": compute, "communication": communication, "checkpoint": self.checkpoint}
        self.training_seconds += whole
        self._reset()
        return seconds


class Means:
    """Running means of loss and metrics over updates."""

    def __init__(self) -> None:
        self.updates = 0
        self._loss = 0.0
        self._metrics: Dict[str, float] = {}

    def add(self, outcome: Outcome) -> None:
        """Take the updates of a block in."""
        for loss, metrics in zip(outcome.loss, outcome.metrics):
            self.updates += 1
            self._loss += loss
            for name, value in metrics.items():
                self._metrics[name] = self._metrics.get(name, 0.0) + value

    def columns(self) -> Dict[str, Any]:
        """Return them as a line of metrics.jsonl has them."""
        means = {name: value / self.updates for name, value in self._metrics.items()}
        return columns(self._loss / self.updates, means)


def columns(loss: float, metrics: Dict[str, float]) -> Dict[str, Any]:
    """Return loss and metrics as a line of metrics.jsonl has them."""
    others = {name: value for name, value in metrics.items() if name != "accuracy"}
    found: Dict[str, Any] = {"loss": loss, "accuracy": metrics.get("accuracy")}
    return dict(found, metrics=others) if others else found


class Lines:
    """Appends JSON objects to a file that stays open: opening it takes longer than a small net's forward pass."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stream: Optional[BinaryIO] = None

    def append(self, value: Dict[str, Any]) -> None:
        """Append one line in one write. Raises OSError; a line that it tore is closed before the next one."""
        if self._stream is None:
            append_json_line(self._path, value)
            self._stream = open(str(self._path), "ab", buffering=0)  # noqa: SIM115 - it stays open
            return
        line = json.dumps(value, separators=(",", ":")).encode() + b"\n"
        if self._stream.write(line) != len(line):
            self.close()
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._path))

    def close(self) -> None:
        """Close the file, if it was opened."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None


class Recorder:
    """Gathers the outcomes of updates and writes a line for every interval. Writes on rank 0 only."""

    def __init__(self, paths: RunPaths, attempt: int, writes: bool, warn: Callable[[str], None]) -> None:
        self._lines = Lines(paths.metrics)
        self._attempt = attempt
        self._writes = writes
        self._warn = warn
        self.interval = Means()
        self.epoch = Means()

    def note(self, outcome: Outcome) -> None:
        """Take the outcome of a block into the interval and the epoch."""
        self.interval.add(outcome)
        self.epoch.add(outcome)

    def end_epoch(self) -> Means:
        """Return the means of the epoch that ends, and begin the next."""
        ended, self.epoch = self.epoch, Means()
        return ended

    def train_line(self, epoch: int, update: int, samples: int, rate: float, seconds: Dict[str, float]) -> None:
        """Write the line of the interval that ends with `update`; `samples` were trained on in `seconds`."""
        ended, self.interval = self.interval, Means()
        whole = sum(seconds.values())
        values = dict(
            ended.columns(),
            samples_per_s=round(samples / whole, 1) if whole else None,
            learning_rate=rate,
            seconds={name: round(value, 6) for name, value in seconds.items()},
        )
        self._line("train", epoch, update, values)

    def evaluation_line(
        self, epoch: int, update: int, loss: float, metrics: Dict[str, float], samples: int, seconds: float
    ) -> None:
        """Write the line of an evaluation after `update`."""
        values = dict(columns(loss, metrics), samples=samples, seconds=round(seconds, 6))
        self._line("evaluation", epoch, update, values)

    def end_line(self, epoch: int, update: int, training_seconds: float) -> None:
        """Write the line that ends an attempt which made all its updates."""
        self._line("end", epoch, update, {"training_seconds": round(training_seconds, 6)})

    def close(self) -> None:
        """Write no more."""
        self._lines.close()

    def _line(self, kind: str, epoch: int, update: int, values: Dict[str, Any]) -> None:
        if not self._writes:
            return
        line = dict({"kind": kind, "attempt": self._attempt, "epoch": epoch, "update": update}, **values)
        try:
            self._lines.append(line)
        except OSError as error:
            self._warn("WARNING: a line of metrics.jsonl was not written: %s" % error)


def accuracy_text(accuracy: Optional[float]) -> str:
    """Return an accuracy for a person to read: " accuracy 97.50 %", and nothing where there is none."""
    return "" if accuracy is None else "  accuracy %.2f %%" % (100 * accuracy)
