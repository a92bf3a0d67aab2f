"""A run that ends before it can be interrupted is started again, and one that fails says why."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trainjob.contract import states
from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths
from trainjob.observe.status import Snapshot
from trainjob.verify.interruptions import KILL, WAYS, InterruptionPlan, PlannedStop, parse_stops
from trainjob.verify.tasks import interrupted
from trainjob.verify.tasks.interrupted import InterruptedJob, Interruption

JOB = InterruptedJob(instances=2, other_instances=None, updates=100, checkpoint_every=10, dtype="float64")


class Bench:
    """A workbench whose runs can be interrupted from number `slow` on; the others are over at once, in `state`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, slow: int, state: str = states.COMPLETED) -> None:
        self.begun: list[RunPaths] = []
        self.stops: list[list[PlannedStop]] = []
        self.state, self.slow = state, slow
        monkeypatch.setattr(interrupted, "interrupt_at", self.interrupt)
        monkeypatch.setattr(interrupted, "wait", lambda _paths, _say: state)

    def begin(self, _request: Any) -> RunPaths:
        self.begun.append(RunPaths(Path(f"run-{len(self.begun) + 1}")))
        return self.begun[-1]

    def interrupt(
        self, _bench: Any, _paths: RunPaths, _job: InterruptedJob, stops: list[PlannedStop]
    ) -> list[Interruption]:
        self.stops.append(stops)
        return [Interruption(KILL, 7, 2)] if len(self.begun) >= self.slow else []

    def refuse_incomplete(self, _status: Snapshot) -> None:
        if self.state != states.COMPLETED:
            raise UserError("a run that this command started is FAILED", "see its log")

    def say(self, line: str) -> None:
        """Take what a user would read."""


def run(bench: Bench) -> tuple[RunPaths, list[Interruption]]:
    return interrupted.interrupted(bench, None, JOB, InterruptionPlan(count=25, ways=(KILL,)))  # type: ignore[arg-type] # stands in for a workbench


def test_a_run_that_was_too_fast_is_started_again_and_interrupted_earlier(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch, slow=2)
    paths, done = run(bench)
    assert paths.folder.name == "run-2"
    assert [one.after_update for one in done] == [7]
    first, second = (stops[-1].after for stops in bench.stops)
    assert second == 25 < first <= 50


def test_runs_that_are_always_too_fast_are_refused_with_the_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch, slow=9)
    with pytest.raises(UserError, match=r"3 runs ended before they could be interrupted: give more --updates"):
        run(bench)
    assert len(bench.begun) == 3


def test_a_run_that_fails_by_itself_is_not_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch, slow=2, state=states.FAILED)
    with pytest.raises(UserError, match="is FAILED"):
        run(bench)
    assert len(bench.begun) == 1


def test_the_interruptions_of_a_task_are_at_updates_of_their_own_and_the_ways_in_turn() -> None:
    for seed in range(20):
        stops = InterruptionPlan(count=4, ways=WAYS[:2], seed=seed).at_updates(60)
        assert [stop.way for stop in stops] == [*WAYS[:2], *WAYS[:2]]
        assert len({stop.after for stop in stops}) == 4
        assert all(stop.moment == "update" and 1 <= stop.after <= 60 for stop in stops)


def test_stops_that_are_stated_are_those_of_a_task_and_only_at_its_updates() -> None:
    stated = parse_stops("preemption@update:7,kill@update:3", 119)
    assert InterruptionPlan(count=2, ways=WAYS, stated=stated).at_updates(60) == stated
    with pytest.raises(UserError, match=r"--stops kill@save:3: of a task, only its updates are moments"):
        parse_stops("kill@save:3", 119)
    with pytest.raises(UserError, match=r"--stops kill@update:120: after update 119 the run ends"):
        parse_stops("kill@update:120", 119)
