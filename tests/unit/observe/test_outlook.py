"""The pace of a run at work, when it should end, and whether its time limit comes first."""

from __future__ import annotations

import dataclasses

import pytest

from trainjob.cli.look.status import outlook_rows
from trainjob.observe.outlook import Outlook, outlook
from trainjob.observe.status import Snapshot
from trainjob.records.progress import ProgressRecord
from trainjob.watch import show

BEGAN = 1000.0


@pytest.fixture(autouse=True)
def now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainjob.contract.clock.time", lambda: BEGAN + 110)


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


def test_a_run_without_a_pace_has_no_outlook() -> None:
    assert outlook(ProgressRecord(), {}) is None
    assert outlook(progress(105), {}) is None
    assert outlook(dataclasses.replace(progress(141), timed_from=None, timed_since=None), {}) is None


def test_its_pace_is_that_of_this_attempt_after_its_first_block() -> None:
    assert outlook(progress(141), {}) == Outlook(80 / 40, 159 * 80 / 40 - 10, None)


def test_a_command_whose_length_nobody_knows_has_a_pace() -> None:
    found = outlook(dataclasses.replace(progress(141), total_updates=None), {"time_left": "1:40"})
    assert found == Outlook(2.0, None, 100)
    assert found.more_attempts == 0
    assert dict(outlook_rows(found)) == {"pace": "2.00 s an update"}


def test_the_time_left_is_shown_until_the_last_update() -> None:
    now = Snapshot(
        *("k3xq", "/runs/k3xq", "RUNNING", "digits", None, None, 1, None, 1, 30, 100, None, None, [], None),
        outlook=Outlook(0.5, 35.0, None),
    )
    assert show.time_left(now) == "35.0 s left"
    assert show.time_left(dataclasses.replace(now, update=100)) == ""
    assert show.time_left(dataclasses.replace(now, outlook=None)) == ""
    assert show.time_left(dataclasses.replace(now, outlook=Outlook(0.5, None, None))) == ""
    assert show.time_left(dataclasses.replace(now, outlook=Outlook(0.5, 0.0, None))) == ""


@pytest.mark.parametrize(("left", "limit_s"), [("1:40", 100), ("UNLIMITED", None), ("", None), ("INVALID", None)])
def test_the_scheduler_tells_the_limit(left: str, limit_s: float | None) -> None:
    found = outlook(progress(141), {"time_left": left})
    assert found is not None
    assert found.limit_left_s == limit_s


@pytest.mark.parametrize(("limit_s", "more"), [(None, 0), (390, 0), (389, 1), (195, 1), (130, 2), (0, 1)])
def test_a_limit_that_comes_first_is_a_warning(limit_s: float | None, more: int) -> None:
    one = Outlook(0.0123, 390.0, limit_s)
    assert one.more_attempts == more
    shown = dict(outlook_rows(one))
    assert (shown["pace"], shown["expected end"]) == ("12.3 ms an update", "in 6 min 30 s")
    assert ("WARNING" in shown) == bool(more)
    if more == 2:
        assert shown["WARNING"] == "its time limit comes first, in 2 min 10 s: it needs about 2 more attempts"


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e308, -1e308])
def test_a_damaged_heartbeat_is_no_outlook(value: float) -> None:
    damaged = dataclasses.replace(progress(140), heartbeat=value)
    assert outlook(damaged, {}) is None
    assert outlook(dataclasses.replace(progress(140), total_updates=10**400), {}) is None
    assert outlook(dataclasses.replace(progress(140), update=10**400), {}) is None
