"""Exports a run's settings and metrics as event files for TensorBoard, which other trackers read, too.

A run has one folder, and in it one more event file for each export that has something new.
"""

from __future__ import annotations

import dataclasses
import json
import math
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from trainjob.backends import mirror
from trainjob.cluster.merging import by_setting
from trainjob.contract import clock, package
from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths
from trainjob.contract.programs.secret_names import is_secret_variable
from trainjob.observe.status import status
from trainjob.records import checkpoints, metrics
from trainjob.records import job as jobs
from trainjob.records.files import read_json, write_json
from trainjob.records.metrics import TRAINING, MetricsLine

# TensorBoard draws no larger figure.
_LARGEST = 1e300
Setting = str | int | float | bool


class Point(NamedTuple):
    """The figures of one line of metrics.jsonl, by name: train/loss, evaluation/accuracy."""

    line: int  # of metrics.jsonl, counted from 1 over those that can be read
    attempt: int
    update: int
    elapsed_s: float  # that training and evaluation had taken, over all attempts
    figures: Mapping[str, float]


@dataclass(frozen=True)
class History:
    """One run, as a tracker takes it."""

    paths: RunPaths
    name: str
    state: str
    began_at_s: float  # when it was submitted, in seconds since 1970
    settings: Mapping[str, Setting]
    places: Mapping[str, str]

    def points(self, after_line: int = 0) -> Iterator[Point]:
        """Yield the figures of the lines after `after_line`, without those that a later attempt has trained again.

        Raises UserError where the file has fewer lines than that: it is not the one that was exported.
        """
        first: dict[int, int] = {}  # the first update that each attempt has logged
        for line in metrics.read(self.paths):
            if line.kind == "train":
                first.setdefault(line.attempt, line.update)
        redone = {
            attempt: min((update for other, update in first.items() if other > attempt), default=math.inf)
            for attempt in first
        }
        lines, elapsed_s = metrics.Reader(self.paths), 0.0
        for line in lines.new():
            elapsed_s += line.seconds if 0 < line.seconds < _LARGEST else 0.0
            if line.number > after_line and line.update < redone.get(line.attempt, math.inf):
                figures = _figures(line)
                if figures:
                    yield Point(line.number, line.attempt, line.update, elapsed_s, figures)
        if lines.count < after_line:
            raise UserError(
                f"{self.paths.metrics} has {lines.count} lines, and {after_line} of this run were exported before",
                "Export to another place",
            )


class Exported(NamedTuple):
    """The result of one export: where it is, and how many lines of metrics.jsonl were new there."""

    place: str
    lines: int


def history(paths: RunPaths) -> History:
    """Return the run as it is now, with its newest metrics fetched. Raises UserError."""
    record, now = jobs.read(paths.job), status(paths)
    submission = now.submission
    mirror.refresh_output(paths, submission)
    newest = checkpoints.newest(paths)
    began = datetime.fromisoformat(submission.submitted_at).timestamp() if submission else paths.job.stat().st_mtime
    places = {
        "run directory": paths.folder,
        "metrics": paths.metrics,
        "logs": paths.logs,
        "newest checkpoint": newest,
        "commit": submission.project.get("commit") if submission else None,
    }
    return History(
        paths,
        paths.id,
        now.state,
        began,
        dict(sorted(_settings(record).items())),
        {name: str(place) for name, place in places.items() if place},
    )


def _settings(record: jobs.JobRecord) -> dict[str, Setting]:
    """Return what the job states and what was worked out from it; never the value of a secret."""
    plan = record.plan
    worked_out: dict[str, Any] = {
        "cluster": plan.cluster,
        "engine": plan.engine,
        "device": plan.topology.device,
        "hosts": plan.topology.host_count,
        "instances": plan.topology.instances,
        "replicas": plan.topology.replicas,
        "global_batch": plan.batch.global_batch if plan.batch else None,
        "command": shlex.join(record.command) if record.command else None,
    }
    if record.train is not None:
        worked_out |= dataclasses.asdict(record.train)
        options = worked_out.pop("task_options")
        worked_out |= {f"set.{name}": value for name, value in options.items()}
    stated = {
        name: value
        for name, value in by_setting(record.request.job).items()
        if not (name.startswith("env.") and is_secret_variable(name.removeprefix("env.")))
    }
    every = {**stated, **{name: value for name, value in worked_out.items() if value is not None}}
    lists = {name: " ".join(map(str, value)) for name, value in every.items() if isinstance(value, list | tuple)}
    return {name: value if isinstance(value, Setting) else str(value) for name, value in {**every, **lists}.items()}


def _figures(line: MetricsLine) -> dict[str, float]:
    """Return every number of a line of training or evaluation under a name that begins with its kind."""
    if line.kind not in ("train", "evaluation"):
        return {}
    figures: dict[str, float | None] = {
        **{name: getattr(line, name) for name in ("epoch", *TRAINING, "samples")},
        **({"seconds": line.seconds} if line.kind == "evaluation" else {}),
        **{f"seconds_{phase}": seconds for phase, seconds in line.phases.items()},
        **line.metrics,
    }
    known = {name: float(value) for name, value in figures.items() if value is not None}
    return {f"{line.kind}/{name}": value for name, value in known.items() if abs(value) < _LARGEST}


# What was exported already. TensorBoard reads files whose names contain "tfevents" alone.
_RECORD = "trainjob-export.json"


def to_tensorboard(history: History, target: str) -> Exported:
    """Add what is new of a run to TARGET/RUN, a log directory for TensorBoard. Raises UserError."""
    plain = "".join(one if one.isascii() and (one.isalnum() or one in "-_.:") else "-" for one in history.name)
    folder = Path(target, *plain.split(":"))  # an element of an array lies in the folder of the whole
    record = read_json(folder / _RECORD)
    record = record if isinstance(record, dict) else {}
    now = {
        "lines": record.get("lines", 0),
        "attempt": record.get("attempt", 0),
        "began_at_s": record.get("began_at_s", history.began_at_s),
        "facts": [history.settings, history.places, history.state],
    }
    lines = 0
    try:
        folder.mkdir(parents=True, exist_ok=True)
        events = _Events(folder, now["began_at_s"])
        for point in history.points(now["lines"]):
            events.add(point, begins_attempt=point.attempt != now["attempt"])
            now |= {"lines": point.line, "attempt": point.attempt}
            lines += 1
        if record.get("facts") != json.loads(json.dumps(now["facts"])):
            events.describe(history)
        events.close()
        write_json(folder / _RECORD, now)
    except OSError as error:
        raise UserError(
            f"--tensorboard {target}: {folder} can't be written: {error.strerror}", "choose a folder that you may write"
        ) from None
    return Exported(str(folder), lines)


class _Events:
    """One event file, which is there once something was written to it."""

    def __init__(self, folder: Path, began_at_s: float) -> None:
        try:
            from tensorboard.compat.proto import event_pb2, summary_pb2
            from tensorboard.summary.writer.event_file_writer import EventFileWriter
        except ImportError:
            raise UserError(
                "--tensorboard needs the package tensorboard", package.install_command("tensorboard"), "missing-package"
            ) from None
        self._events, self._summaries, self._open = event_pb2, summary_pb2, EventFileWriter
        self._folder, self._began_at_s = folder, began_at_s
        self._writer: Any = None
        self._update = 0

    def add(self, point: Point, *, begins_attempt: bool) -> None:
        """Write the figures of one line; the first of an attempt takes back what others had from its update on."""
        at_s = self._began_at_s + point.elapsed_s
        if begins_attempt:
            start = self._events.SessionLog(status=self._events.SessionLog.START)
            self._write(self._events.Event(wall_time=at_s, step=point.update, session_log=start))
        values = [self._summaries.Summary.Value(tag=tag, simple_value=value) for tag, value in point.figures.items()]
        summary = self._summaries.Summary(value=values)
        self._write(self._events.Event(wall_time=at_s, step=point.update, summary=summary))
        self._update = point.update

    def describe(self, history: History) -> None:
        """Write settings and places: as a text, and as hyperparameters by which TensorBoard compares runs."""
        from tensorboard.plugins.hparams.summary_v2 import hparams_pb
        from tensorboard.plugins.text.metadata import create_summary_metadata

        rows = {"state": history.state, **history.places, **history.settings}
        table = "\n".join(f"| {_cell(name)} | {_cell(value)} |" for name, value in rows.items())
        metadata = create_summary_metadata(display_name="run", description="")
        text = self._summaries.Summary()
        value = text.value.add(tag="run", metadata=metadata)
        value.tensor.dtype = 7  # DT_STRING
        value.tensor.string_val.append(f"| | |\n|---|---|\n{table}".encode())
        value.tensor.tensor_shape.dim.add(size=1)
        at_s = clock.time()
        self._write(self._events.Event(wall_time=at_s, step=self._update, summary=text))
        self._write(self._events.Event(wall_time=at_s, summary=hparams_pb(dict(history.settings))))

    def _write(self, event: object) -> None:
        if self._writer is None:
            self._writer = self._open(str(self._folder))
        self._writer.add_event(event)

    def close(self) -> None:
        """Write what is still in memory."""
        if self._writer is not None:
            self._writer.close()


def _cell(value: object) -> str:
    """Return a value for a Markdown table: nothing in it is a mark, and TensorBoard shows no HTML."""
    return "".join(f"&#{ord(one)};" if one in "|\\`*_<>&[]\n\r" else one for one in str(value))
