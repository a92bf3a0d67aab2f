"""A script's attempts on a cluster whose scheduler starts the next one at once: each learns its moment in time."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, cast

import pytest

from tests.unit.cli.test_live_views import RUNNING
from trainjob.contract import states
from trainjob.contract.paths import RunPaths
from trainjob.lifecycle import resume
from trainjob.observe.status import Snapshot
from trainjob.records import updates
from trainjob.records.updates import UpdatePaths
from trainjob.requests import workbench
from trainjob.requests.workbench import Workbench
from trainjob.verify.interruptions import parse_stops
from trainjob.verify.scripts import interruptions

STOPS = "time-limit@start:0,preemption@update:3"


class Scheduler:
    """Starts a run until attempt `completes_at`. An attempt reads, as it begins, at which moment it waits.

    The attempts `missing` never get there. Where they fail, only `resume` starts the next one.
    """

    def __init__(self, folder: Path, completes_at: int, missing: Iterable[int] = (), *, fails: bool = False) -> None:
        self.paths, self.completes_at, self.missing, self.fails = RunPaths(folder / "run"), completes_at, missing, fails
        self.attempt = self.cancelled = 0
        self.is_waiting = False

    def begin(self, *_ignored: object, **_named: object) -> RunPaths:
        self.attempt += 1
        assert self.attempt < 20, "nothing ends this run"
        is_told = (self.paths.folder.parent / f"wait-{self.attempt}.json").exists()
        self.is_waiting = is_told and self.attempt not in self.missing
        if self.is_waiting:
            path = UpdatePaths(self.paths).rank(0)
            path.parent.mkdir(parents=True, exist_ok=True)
            line = {"event": updates.PAUSED, "attempt": self.attempt, "update": 3, "pid": 1, "handles": []}
            with path.open("a") as stream:
                stream.write(json.dumps(line) + "\n")
        return self.paths

    def interrupt(self, *_ignored: object, **_named: object) -> None:
        self.is_waiting = False
        if not self.fails:
            self.begin()

    def poll(self, _paths: RunPaths, until: Callable[[Snapshot], bool]) -> Snapshot:
        while not until(now := self.now()):
            assert not self.is_waiting, "it waits for an interruption, and nobody sees that"
            self.begin()
        return now

    def now(self) -> Snapshot:
        state = states.FAILED if self.fails and not self.is_waiting else states.RUNNING
        if self.attempt >= self.completes_at and not self.is_waiting:
            state = states.COMPLETED
        return dataclasses.replace(RUNNING, folder=str(self.paths.folder), attempt=self.attempt, state=state)

    def cancel(self, _paths: RunPaths, *, grace_s: float) -> None:
        self.cancelled += 1


@pytest.fixture
def interrupted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., interruptions.Interrupted]:
    def run(scheduler: Scheduler, stops: str = STOPS) -> interruptions.Interrupted:
        monkeypatch.setattr(Workbench, "begin", scheduler.begin)
        monkeypatch.setattr(workbench, "poll", scheduler.poll)
        monkeypatch.setattr(interruptions, "interrupt", scheduler.interrupt)
        monkeypatch.setattr(resume, "resume", scheduler.begin)
        monkeypatch.setattr(interruptions, "cancel", scheduler.cancel)
        bench = Workbench(cast(Any, None), tmp_path, is_on_cluster=True)
        return interruptions.interrupted(bench, cast(Any, None), parse_stops(stops))

    return run


def test_an_attempt_that_begins_at_once_knows_at_which_moment_it_is_interrupted(
    interrupted: Callable[..., interruptions.Interrupted], tmp_path: Path
) -> None:
    scheduler = Scheduler(tmp_path, completes_at=3)
    found = interrupted(scheduler)
    assert [(one.way, one.attempt) for one in found.interruptions] == [("time-limit", 1), ("preemption", 2)]
    assert (found.crashed, scheduler.attempt, scheduler.cancelled) == (None, 3, 0)


@pytest.mark.parametrize("missing", [(), range(2, 20)])
def test_a_run_that_makes_more_attempts_than_were_announced_is_cancelled(
    interrupted: Callable[..., interruptions.Interrupted], tmp_path: Path, missing: Iterable[int]
) -> None:
    scheduler = Scheduler(tmp_path, completes_at=100, missing=missing)
    assert interrupted(scheduler).crashed is not None
    assert (scheduler.attempt, scheduler.cancelled) == (interruptions.most_attempts(2) + 1, 1)


def test_a_second_torn_save_is_not_put_back_for_an_attempt_that_was_not_announced(
    interrupted: Callable[..., interruptions.Interrupted], tmp_path: Path
) -> None:
    for attempt in (1, 3):
        (tmp_path / f"kept-{attempt}.json").write_text(json.dumps({"path": str(tmp_path / "last.pt"), "kept": None}))
    scheduler = Scheduler(tmp_path, completes_at=5, missing=[2], fails=True)
    found = interrupted(scheduler, "kill@save:2,kill@save:5")
    assert [one.attempt for one in found.interruptions] == [1, 3]
    assert [one.attempt for one in found.torn] == [2]
    assert found.crashed is not None
    assert (found.crashed.attempt, scheduler.attempt, scheduler.cancelled) == (4, 4, 0)
