"""When a run at work should end, and whether its time limit comes first."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from trainjob.cli.look.status import outlook_rows
from trainjob.contract.paths import RunPaths
from trainjob.observe.outlook import Outlook, outlook
from trainjob.observe.status import Snapshot
from trainjob.records.prediction import Prediction, Range
from trainjob.records.progress import ProgressRecord
from trainjob.watch import show

BEGAN = 1000.0


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunPaths:
    monkeypatch.setattr("trainjob.contract.clock.time", lambda: BEGAN + 110)
    return RunPaths(tmp_path)


def progress(update: int) -> ProgressRecord:
    """The progress of an attempt that continued from update 100, whose first block ended 20 s after it began."""
    return ProgressRecord(
        attempt=2,
        update=update,
        total_updates=300,
        heartbeat=BEGAN + 100,
        began_at=100,
        timed_from=101,
        timed_since=BEGAN + 20,
    )


def predict(paths: RunPaths) -> None:
    update_s, run_s = Range(2.0, 1.0, 3.0), Range(600, 300, 900)
    Prediction(1, 300, update_s, run_s, basis="tests", start_up_s=20.0).write(paths)


def test_a_run_that_nothing_tells_of_has_nooutlook_rows(run: RunPaths) -> None:
    assert outlook(run, ProgressRecord(), {}) is None
    assert outlook(run, progress(105), {}) is None
    assert outlook(run, dataclasses.replace(progress(141), timed_from=None, timed_since=None), {}) is None


def test_before_it_has_a_pace_its_prediction_tells(run: RunPaths) -> None:
    predict(run)
    assert outlook(run, progress(105), {}) == Outlook(195 * 2.0 - 10, None, "its prediction")


def test_its_pace_is_that_of_this_attempt_after_its_first_block(run: RunPaths) -> None:
    expected = Outlook(159 * 80 / 40 - 10, None, "its pace")
    assert outlook(run, progress(141), {}) == expected
    predict(run)
    assert outlook(run, progress(141), {}) == expected


def test_the_time_left_is_shown_until_the_last_update() -> None:
    now = Snapshot(
        *("k3xq", "/runs/k3xq", "RUNNING", "digits", None, None, 1, None, 1, 30, 100, None, None, [], None),
        outlook=Outlook(35.0, None, "its pace"),
    )
    assert show.time_left(now) == "35.0 s left"
    assert show.time_left(dataclasses.replace(now, update=100)) == ""
    assert show.time_left(dataclasses.replace(now, outlook=None)) == ""
    assert show.time_left(dataclasses.replace(now, outlook=Outlook(0.0, None, "its pace"))) == ""


@pytest.mark.parametrize(("left", "limit_s"), [("1:40", 100), ("UNLIMITED", None), ("", None), ("INVALID", None)])
def test_the_scheduler_tells_the_limit(run: RunPaths, left: str, limit_s: float | None) -> None:
    found = outlook(run, progress(141), {"time_left": left})
    assert found is not None
    assert found.limit_left_s == limit_s


@pytest.mark.parametrize(("limit_s", "more"), [(None, 0), (390, 0), (389, 1), (195, 1), (130, 2), (0, 1)])
def test_a_limit_that_comes_first_is_a_warning(limit_s: float | None, more: int) -> None:
    one = Outlook(390.0, limit_s, "its pace")
    assert one.more_attempts == more
    shown = dict(outlook_rows(one))
    assert shown["expected end"] == "in 6 min 30 s (at its current pace)"
    assert ("WARNING" in shown) == bool(more)
    if more == 2:
        assert shown["WARNING"] == "its time limit comes first, in 2 min 10 s: it needs about 2 more attempts"


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e308, -1e308])
def test_a_damaged_heartbeat_is_nooutlook_rows(run: RunPaths, value: float) -> None:
    damaged = dataclasses.replace(progress(140), heartbeat=value)
    assert outlook(run, damaged, {}) is None
    assert outlook(run, dataclasses.replace(progress(140), total_updates=10**400), {}) is None
    assert outlook(run, dataclasses.replace(progress(140), update=10**400), {}) is None
