"""A run as trackers get it, from its folder: its settings, its metrics line by line, and the paths of its files."""

from __future__ import annotations

import dataclasses
import math
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from trainjob.backends import mirror
from trainjob.backends.base import read_submission
from trainjob.cluster.merging import by_setting
from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths
from trainjob.contract.secrets import is_secret_name
from trainjob.observe.status import status
from trainjob.records import checkpoints
from trainjob.records import job as jobs
from trainjob.records.files import read_json_lines

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
        redone = _redone_from(self.paths)
        elapsed_s, number = 0.0, 0
        for number, line in enumerate(read_json_lines(self.paths.metrics), 1):
            elapsed_s += _seconds(line)
            attempt, update = _whole(line, "attempt"), _whole(line, "update")
            if number <= after_line or update is None or update >= redone.get(attempt or 0, math.inf):
                continue
            figures = _figures(line)
            if figures:
                yield Point(number, attempt or 0, update, elapsed_s, figures)
        if number < after_line:
            raise UserError(
                f"{self.paths.metrics} has {number} lines, and {after_line} of this run were exported before",
                "Export to another place",
            )


class Exported(NamedTuple):
    """The result of one export: its target, and the number of lines of metrics.jsonl that were new there."""

    place: str
    lines: int


Tracker = Callable[[History, str], Exported]


def history(paths: RunPaths) -> History:
    """Return the run as it is now, with its newest metrics fetched. Raises UserError."""
    mirror.refresh_output(paths)
    record, submission = jobs.read(paths.job), read_submission(paths)
    began = datetime.fromisoformat(submission.submitted_at).timestamp() if submission else paths.job.stat().st_mtime
    return History(
        paths,
        paths.id,
        record.name,
        status(paths).state,
        began,
        dict(sorted(_settings(record).items())),
        dict(_places(paths, submission.project.get("commit") if submission else None)),
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
        if not (name.startswith("env.") and is_secret_name(name.removeprefix("env.")))
    }
    every = {**stated, **{name: value for name, value in worked_out.items() if value is not None}}
    return {name: value if isinstance(value, Setting) else _as_text(value) for name, value in every.items()}


def _as_text(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _places(paths: RunPaths, commit: str | None) -> Iterator[tuple[str, str]]:
    yield "run directory", str(paths.folder)
    yield "metrics", str(paths.metrics)
    yield "logs", str(paths.logs)
    newest = checkpoints.folders(paths.checkpoints)
    if newest:
        yield "newest checkpoint", str(newest[-1])
    if commit:
        yield "commit", commit


def _redone_from(paths: RunPaths) -> dict[int, int]:
    """Return for each attempt the first update that a later attempt has logged."""
    first: dict[int, int] = {}
    for line in read_json_lines(paths.metrics):
        attempt, update = _whole(line, "attempt"), _whole(line, "update")
        if attempt is not None and update is not None and line.get("kind") == "train":
            first.setdefault(attempt, update)
    later = {attempt: [update for other, update in first.items() if other > attempt] for attempt in first}
    return {attempt: min(updates) for attempt, updates in later.items() if updates}


def _whole(line: Mapping[str, Any], key: str) -> int | None:
    value = line.get(key)
    return value if type(value) is int and abs(value) < 1 << 62 else None


def _is_figure(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) < 1e300


def _seconds(line: Mapping[str, Any]) -> float:
    seconds = line.get("seconds")
    every: Iterable[Any] = seconds.values() if isinstance(seconds, dict) else (seconds,)
    return float(sum(value for value in every if _is_figure(value) and value > 0))


def _figures(line: Mapping[str, Any]) -> dict[str, float]:
    """Return every number of a line of training or evaluation under a name that begins with its kind."""
    kind = line.get("kind")
    if kind not in ("train", "evaluation"):
        return {}
    figures = {f"{kind}/{name}": value for name, value in line.items() if name not in ("attempt", "update")}
    for group in ("seconds", "metrics"):
        inner = line.get(group)
        word = f"{kind}/seconds_" if group == "seconds" else f"{kind}/"
        figures |= {f"{word}{name}": value for name, value in inner.items()} if isinstance(inner, dict) else {}
    return {name: float(value) for name, value in figures.items() if _is_figure(value)}
