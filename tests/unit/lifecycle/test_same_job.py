"""Which earlier submission of the same job is in the way of another one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.support.run_folders import made, only_one_is_running
from trainjob.contract.errors import UserError
from trainjob.lifecycle import start


@pytest.fixture(autouse=True)
def _one_script_is_running(monkeypatch: pytest.MonkeyPatch) -> None:
    only_one_is_running(monkeypatch)


def submitted(folder: Path, seconds_ago: float, state: str | None) -> None:
    at = datetime.now(UTC) - timedelta(seconds=seconds_ago)
    made(folder, "abcd-x", state=state, submitted_at=at.isoformat(timespec="seconds"), digest="same")


def is_refused(digest: str) -> bool:
    try:
        start.refuse_the_same(digest)
    except UserError:
        return True
    return False


@pytest.mark.parametrize("state", [None, "RUNNING", "COMPLETED"])
def test_the_same_job_within_a_minute_needs_again(tmp_path: Path, state: str | None) -> None:
    submitted(tmp_path, 9, state)
    with pytest.raises(UserError, match=r"the same job was submitted (8|9|10) s ago, as abcd-x"):
        start.refuse_the_same("same")
    assert not is_refused("another")


@pytest.mark.parametrize("state", ["FAILED", "CANCELLED", "STOPPED", "TIMEOUT"])
def test_a_job_that_ended_early_may_be_tried_again_at_once(tmp_path: Path, state: str) -> None:
    submitted(tmp_path, 9, state)
    assert not is_refused("same")


@pytest.mark.parametrize("seconds_ago", [70, -40, -20_000_000])
def test_a_job_of_long_ago_or_of_a_clock_that_was_set_back_is_not_in_the_way(tmp_path: Path, seconds_ago: int) -> None:
    submitted(tmp_path, seconds_ago, "RUNNING")
    assert not is_refused("same")
