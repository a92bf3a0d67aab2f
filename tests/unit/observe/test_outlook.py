"""When a run at work should end, and whether its time limit comes first."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from trainjob.cli.look.status import outlook_rows
from trainjob.contract.paths import RunPaths
from trainjob.observe.outlook import Outlook, outlook
from trainjob.records.measures import ProgressRecord
from trainjob.records.prediction import Prediction, Range

BEGAN = 1000.0


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunPaths:
    monkeypatch.setattr("trainjob.observe.outlook.time.time", lambda: BEGAN + 110)
    paths = RunPaths(tmp_path)
    paths.events.write_text(f"900\t1\tbegan\t\n950\t1\tended\tREQUEUED 75\n{BEGAN}\t2\tbegan\t\n")
    return paths


def progress(update: int, attempt: int = 2) -> ProgressRecord:
    return ProgressRecord(attempt=attempt, update=update, total_updates=300, heartbeat=BEGAN + 100, began_at=100)


def predict(paths: RunPaths) -> None:
    update_s, run_s = Range(2.0, 1.0, 3.0), Range(600, 300, 900)
    Prediction(1, 300, update_s, run_s, basis="tests", start_up_s=20.0).write(paths)


def test_a_run_that_nothing_tells_of_has_nooutlook_rows(run: RunPaths) -> None:
    assert outlook(run, ProgressRecord(), {}) is None
    assert outlook(run, progress(110), {}) is None


def test_before_it_has_a_pace_its_prediction_tells(run: RunPaths) -> None:
    predict(run)
    assert outlook(run, progress(110), {}) == Outlook(190 * 2.0 - 10, None, "its prediction")


def test_its_pace_is_that_of_this_attempt(run: RunPaths) -> None:
    assert outlook(run, progress(140), {}) == Outlook(160 * 100 / 40 - 10, None, "its pace")
    predict(run)
    assert outlook(run, progress(140), {}) == Outlook(160 * 80 / 40 - 10, None, "its pace")  # start-up is no pace


def test_progress_of_an_older_attempt_tells_no_pace(run: RunPaths) -> None:
    assert outlook(run, progress(140, attempt=1), {}) is None


@pytest.mark.parametrize(("left", "limit_s"), [("1:40", 100), ("UNLIMITED", None), ("", None), ("INVALID", None)])
def test_the_scheduler_tells_the_limit(run: RunPaths, left: str, limit_s: float | None) -> None:
    found = outlook(run, progress(140), {"time_left": left})
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
