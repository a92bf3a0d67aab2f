"""A run as a tracker gets it, from its folder: its settings, its metrics line by line, and where its files are."""

from __future__ import annotations

import dataclasses
import math
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from trainjob.backends import mirror
from trainjob.cluster.merging import by_setting
from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths
from trainjob.contract.secret_names import is_secret_variable
from trainjob.observe.status import status
from trainjob.records import checkpoints, metrics
from trainjob.records import job as jobs
from trainjob.records.metrics import TRAINING, Line

# No tracker draws a larger figure.
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
    group: str  # the job's name: what compares with this run
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


Tracker = Callable[[History, str], Exported]


def history(paths: RunPaths) -> History:
    """Return the run as it is now, with its newest metrics fetched. Raises UserError."""
    mirror.refresh_output(paths)
    record, now = jobs.read(paths.job), status(paths)
    submission, newest = now.submission, checkpoints.newest(paths)
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
        record.name,
        now.state,
        began,
        dict(sorted(_settings(record).items())),
        {name: str(place) for name, place in places.items() if place},
    )


def plain_id(run_id: str, kept: str) -> str:
    """Return the id with a hyphen for every character that is neither a letter nor a digit nor in `kept`."""
    return "".join(one if one.isascii() and (one.isalnum() or one in kept) else "-" for one in run_id)


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


def _figures(line: Line) -> dict[str, float]:
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
