"""States: files first, the back end second, and never RUNNING without a process."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from run_folders import ALIVE, GONE, made

from trainjob.contract import states
from trainjob.contract.errors import UserError
from trainjob.runs import cancel, index
from trainjob.runs.resume import check_resumable
from trainjob.runs.status import Status, poll, status, statuses
from trainjob.submit import local

ELSEWHERE = {"pid": 1, "started": 1, "host": "another-host"}


@pytest.fixture(autouse=True)
def _this_process_is_a_job_script(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ALIVE, "started", local._started(ALIVE["pid"]))


@pytest.mark.parametrize("state", sorted(states.ENDED))
def test_an_ended_run_is_what_its_file_says(tmp_path: Path, state: str) -> None:
    assert status(made(tmp_path, "abcd", state=state)).state == state


@pytest.mark.parametrize(
    ("state", "native", "expected", "note"),
    [
        ("RUNNING", "ALIVE", "RUNNING", None),
        (None, "ALIVE", "PENDING", None),
        ("RUNNING", "GONE", "LOST", "gone without a word"),
        (None, "GONE", "LOST", "gone without a word"),
        ("RUNNING", None, "LOST", "the hand-over was cut"),
        ("RUNNING", "ELSEWHERE", "RUNNING", "started on host another-host"),
    ],
)
def test_an_open_run_is_what_its_process_says(
    tmp_path: Path, state: str | None, native: str | None, expected: str, note: str | None
) -> None:
    known = {"ALIVE": ALIVE, "GONE": GONE, "ELSEWHERE": ELSEWHERE}
    found = status(made(tmp_path, "abcd", state=state, native=known[native] if native else None))
    assert found.state == expected
    assert (found.note is None) if note is None else (note in (found.note or ""))


def test_another_process_with_the_same_id_is_not_the_run(tmp_path: Path) -> None:
    reused = {**ALIVE, "started": ALIVE["started"] - 1}
    assert status(made(tmp_path, "abcd", state="RUNNING", native=reused)).state == "LOST"


def test_a_killed_run_that_was_being_cancelled_is_cancelled(tmp_path: Path) -> None:
    paths = made(tmp_path, "abcd", state="RUNNING", cancelled_at="2026-01-01T00:00:01+00:00")
    assert status(paths).state == "CANCELLED"


def test_a_run_that_waits_for_its_next_attempt_is_pending(tmp_path: Path) -> None:
    assert status(made(tmp_path, "abcd", state="FAILED", native=ALIVE, attempt=2)).state == "PENDING"


def test_a_run_that_ends_between_two_looks_has_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = made(tmp_path, "abcd", state="RUNNING")

    def ends(natives: Sequence[Any]) -> list[Any]:
        paths.state.write_text("COMPLETED\n")
        return [local.Liveness.GONE for _ in natives]

    monkeypatch.setattr(local, "liveness", ends)
    assert status(paths).state == "COMPLETED"


def test_a_thousand_runs_ask_the_back_end_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(1000):
        made(tmp_path, f"{number:04d}-job", state="RUNNING" if number % 2 else "COMPLETED")
    asked: list[int] = []
    ours = local.liveness
    monkeypatch.setattr(local, "liveness", lambda natives: asked.append(len(natives)) or ours(natives))
    found = statuses(index.every_run())
    assert (len(found), asked) == (1000, [500])
    assert [one.state for one in found[:2]] == ["COMPLETED", "LOST"]


@pytest.mark.parametrize("broken", ["", "{", "[]", '"text"', "{}", "null"])
def test_a_broken_file_of_one_run_hides_no_other(tmp_path: Path, broken: str) -> None:
    paths = made(tmp_path, "abcd", state="RUNNING")
    for path in (paths.submission, paths.job, paths.progress):
        path.write_text(broken)
    made(tmp_path, "efgh")
    assert [one.state for one in statuses(index.every_run())] == ["RUNNING", "COMPLETED"]


def test_fields_of_a_newer_trainjob_are_passed_over(tmp_path: Path) -> None:
    assert status(made(tmp_path, "abcd", of_the_future=True)).cluster == "local"


def test_a_failed_run_without_a_blamed_rank_shows_what_its_script_printed(tmp_path: Path) -> None:
    paths = made(tmp_path, "abcd", state="FAILED")
    paths.scheduler_log.write_text("--- attempt 1 ---\nold\n--- attempt 2 ---\ntrainjob: port 29400 is in use\n")
    assert status(paths).script_tail == ["trainjob: port 29400 is in use"]


def test_status_is_plain_json(tmp_path: Path) -> None:
    shown = json.loads(json.dumps(status(made(tmp_path, "abcd")).as_json()))
    assert (shown["id"], shown["state"], shown["failure"], shown["script_tail"]) == ("abcd", "COMPLETED", None, [])


def test_polling_ends_with_the_first_status_that_is_wanted(tmp_path: Path) -> None:
    paths = made(tmp_path, "abcd", state="RUNNING", native=ALIVE)
    looks: list[Status] = []
    ended = poll(
        paths,
        lambda now: looks.append(now) or now.state == "FAILED",  # type: ignore[func-returns-value]
        lambda: paths.state.write_text("FAILED\n") and None,
    )
    assert ([look.state for look in looks], ended.state) == (["RUNNING", "FAILED"], "FAILED")


@pytest.mark.parametrize("state", sorted(states.RESUMABLE - {"LOST"}))
def test_a_run_that_ended_early_may_be_resumed(tmp_path: Path, state: str) -> None:
    check_resumable(made(tmp_path, "abcd", state=state))


def test_a_run_on_another_host_is_cancelled_there(tmp_path: Path) -> None:
    paths = made(tmp_path, "abcd", state="RUNNING", native=ELSEWHERE)
    with pytest.raises(UserError, match="was started on host another-host and this is"):
        cancel.cancel(paths, grace_s=0)
