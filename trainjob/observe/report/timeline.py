"""The events of a run, in order and in words: attempts, signals, nodes avoided, checkpoints passed over."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from operator import itemgetter

from trainjob.contract.paths import RunPaths
from trainjob.observe.report.series import Mark
from trainjob.records import events as noted
from trainjob.records import failure
from trainjob.records import progress as progress_record
from trainjob.records.files import DamagedError

_SIGNALS = {"TERM": "told to end (TERM)", "USR1": "told to write a checkpoint and stop (USR1)"}

_CONTINUED = "continued from the checkpoint of update {}"
_FORMAT = "%Y-%m-%d %H:%M:%S"  # UTC


@dataclass(frozen=True)
class Happening:
    """One row. `time` is empty if no file gives a time."""

    time: str
    attempt: int | None
    text: str


def events(paths: RunPaths, marks: Sequence[Mark] = ()) -> list[Happening]:
    """Return what has happened, oldest first; of each attempt, what is undated follows what is dated.

    Job scripts note when attempts begin and end, `marks` when their ranks began and stopped to train.
    """
    dated = [(event.attempt, event.at, _in_words(event)) for event in noted.read(paths)]
    for mark in marks:
        begins = _CONTINUED.format(mark.update) if mark.update else "training begins"
        stops = f"stops on request after update {mark.update}; its checkpoint is written"
        dated.append((mark.attempt, mark.at, stops if mark.kind == "stop" else begins))
    rows = [
        Happening(datetime.fromtimestamp(at, UTC).strftime(_FORMAT), attempt, text)
        for attempt, at, text in sorted(dated, key=itemgetter(0, 1))
    ]
    for node in noted.excluded_nodes(paths):
        number = int(node["attempt"]) if node["attempt"].isdecimal() else None
        rows.append(Happening("", number, f"avoids node {node['node']}: {node['why']}"))
    # Each attempt overwrites these files, so that they tell of the newest alone.
    with contextlib.suppress(DamagedError):
        progress, failed = progress_record.load(paths), failure.load(paths)
        if progress is not None:
            texts = [f"checkpoint passed over: {line}" for line in progress.passed_over]
            if progress.began_at and progress.attempt not in {mark.attempt for mark in marks}:
                texts.insert(0, _CONTINUED.format(progress.began_at))
            if progress.checkpoints_not_written:
                texts.append(f"{progress.checkpoints_not_written} checkpoints could not be written")
            if failed is not None:
                texts.append(f"rank {failed.rank} on {failed.host} failed first, with exit code {failed.exit_code}")
            rows += [Happening("", progress.attempt, text) for text in texts]
    return sorted(rows, key=lambda row: row.attempt or 0)


def _in_words(event: noted.Event) -> str:
    if event.what == noted.BEGAN:
        return f"attempt {event.attempt} begins" + (f" on {event.detail}" if event.detail else "")
    if event.what == noted.SIGNAL:
        return _SIGNALS.get(event.detail, f"signal {event.detail}")
    if event.what == noted.IMAGE:
        return f"runs in image {event.detail}"
    if event.what == noted.LOST:
        return "killed without a word: this is its last sign of life"
    state, _, code = event.detail.partition(" ")
    return f"ends: {state}" + (f", exit code {code}" if code else "")
