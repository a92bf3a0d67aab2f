"""A script's attempts on a cluster whose scheduler starts the next one at once: each learns its moment in time."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from tests.unit.cli.test_live_views import RUNNING
from trainjob.contract import states
from trainjob.contract.paths import RunPaths
from trainjob.observe.status import Snapshot
from trainjob.records import updates
from trainjob.records.updates import UpdatePaths
from trainjob.requests import workbench
from trainjob.requests.workbench import Workbench
from trainjob.verify.interruptions import parse_stops
from trainjob.verify.scripts import interruptions

STOPS = parse_stops("time-limit@start:0,preemption@update:3")


class Scheduler:
    """Starts a run again until attempt `completes_at`. An attempt reads, as it begins, at which moment it waits.

    Those from `misses` on never get there.
    """

    def __init__(self, folder: Path, completes_at: int, misses: int = 100) -> None:
        self.paths, self.completes_at, self.misses, self.attempt = RunPaths(folder / "run"), completes_at, misses, 0
        self.is_waiting, self.cancelled = False, 0

    def begin(self, *_ignored: object, **_named: object) -> RunPaths:
        self.attempt += 1
        assert self.attempt < 20, "nothing ends this run"
        is_told = (self.paths.folder.parent / f"wait-{self.attempt}.json").exists()
        self.is_waiting = is_told and self.attempt < self.misses
        if self.is_waiting:
            path = UpdatePaths(self.paths).rank(0)
            path.parent.mkdir(parents=True, exist_ok=True)
            line = {"event": updates.PAUSED, "attempt": self.attempt, "update": 3, "pid": 1, "handles": []}
            with path.open("a") as stream:
                stream.write(json.dumps(line) + "\n")
        return self.paths

    def poll(self, _paths: RunPaths, until: Callable[[Snapshot], bool]) -> Snapshot:
        while not until(now := self.now()):
            assert not self.is_waiting, "it waits for an interruption, and nobody sees that"
            self.begin()
        return now

    def now(self) -> Snapshot:
        state = states.COMPLETED if self.attempt >= self.completes_at and not self.is_waiting else states.RUNNING
        return dataclasses.replace(RUNNING, folder=str(self.paths.folder), attempt=self.attempt, state=state)

    def cancel(self, _paths: RunPaths, *, grace_s: float) -> None:
        self.cancelled += 1


@pytest.fixture
def interrupted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[Scheduler], interruptions.Interrupted]:
    def run(scheduler: Scheduler) -> interruptions.Interrupted:
        monkeypatch.setattr(Workbench, "begin", scheduler.begin)
        monkeypatch.setattr(workbench, "poll", scheduler.poll)
        monkeypatch.setattr(interruptions, "interrupt", scheduler.begin)
        monkeypatch.setattr(interruptions, "cancel", scheduler.cancel)
        bench = Workbench(cast(Any, None), tmp_path, is_on_cluster=True)
        return interruptions.interrupted(bench, cast(Any, None), STOPS)

    return run


def test_an_attempt_that_begins_at_once_knows_at_which_moment_it_is_interrupted(
    interrupted: Callable[[Scheduler], interruptions.Interrupted], tmp_path: Path
) -> None:
    scheduler = Scheduler(tmp_path, completes_at=3)
    found = interrupted(scheduler)
    assert [(one.way, one.attempt) for one in found.interruptions] == [("time-limit", 1), ("preemption", 2)]
    assert (found.crashed, scheduler.cancelled) == (None, 0)


@pytest.mark.parametrize("misses", [2, 100])
def test_a_run_that_makes_more_attempts_than_were_announced_is_cancelled(
    interrupted: Callable[[Scheduler], interruptions.Interrupted], tmp_path: Path, misses: int
) -> None:
    scheduler = Scheduler(tmp_path, completes_at=100, misses=misses)
    assert interrupted(scheduler).crashed is not None
    assert (scheduler.attempt, scheduler.cancelled) == (interruptions.most_attempts(len(STOPS)) + 1, 1)
