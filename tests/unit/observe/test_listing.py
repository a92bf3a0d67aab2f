"""Which runs are listed, and that no back end is asked about others."""

from __future__ import annotations

import os
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.support.cases import each
from tests.support.run_folders import ALIVE, made, only_one_is_running
from trainjob.backends import detached
from trainjob.backends.base import Answer, Liveness
from trainjob.backends.slurm import backend as slurm
from trainjob.contract import states
from trainjob.contract.errors import UserError
from trainjob.observe.listing import Choice, listed, listed_at_once, time_of

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)


@pytest.fixture(autouse=True)
def _runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    only_one_is_running(monkeypatch)
    made(tmp_path, "zzzz-digits", submitted_at="2026-11-20T12:00:00+00:00", state="FAILED")
    made(tmp_path, "aaaa-digits", submitted_at="2026-11-21T13:00:00+00:00", cluster="pod")
    made(tmp_path, "mmmm-resnet", submitted_at="2026-11-22T11:00:00+00:00", state="RUNNING", native=ALIVE)


@each(
    ("choice", "expected"),
    [
        ({}, ["zzzz", "aaaa", "mmmm"]),
        ({"name": "digits"}, ["zzzz", "aaaa"]),
        ({"name": "*s*t"}, ["mmmm"]),
        ({"cluster": "pod"}, ["aaaa"]),
        ({"state": "FAILED"}, ["zzzz"]),
        ({"since": NOW - timedelta(days=1)}, ["aaaa", "mmmm"]),
        ({"limit": 2}, ["aaaa", "mmmm"]),
        ({"limit": 5}, ["zzzz", "aaaa", "mmmm"]),
        ({"limit": 1, "name": "digits"}, ["aaaa"]),
        ({"limit": 1, "state": "COMPLETED"}, ["aaaa"]),
        ({"cluster": "nowhere"}, []),
    ],
)
def test_runs_are_chosen(choice: dict[str, Any], expected: list[str]) -> None:
    assert [one.id[:4] for one in listed(Choice(**choice))] == expected


def test_nobody_is_asked_about_runs_that_are_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detached, "ask", lambda _: pytest.fail("asked"))
    assert len(listed(Choice(name="digits"))) == 2


def test_what_is_known_comes_before_answers_that_take_their_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = {"job_id": "7", "folder": str(tmp_path / "qqqq-slow"), "host": None, "user": None}
    made(tmp_path, "qqqq-slow", backend="slurm", native=job, state="RUNNING", submitted_at="2026-11-22T11:30:00+00:00")
    may_answer = threading.Event()

    def slow(natives: list[Any]) -> list[Answer]:
        may_answer.wait(60)
        return [Answer(Liveness.GONE, states.TIMEOUT, "Slurm ended it at its time limit")] * len(natives)

    monkeypatch.setattr(slurm, "ask", slow)
    looks = listed_at_once(Choice(name="slow"), 0.01, [])
    (known,), is_answered = next(looks)
    assert (known.id, known.state, known.is_stale, is_answered) == ("qqqq-slow", states.RUNNING, True, False)
    may_answer.set()
    (answered,), is_answered = next(looks)
    assert (answered.state, answered.is_stale, is_answered) == (states.TIMEOUT, False, True)
    # How it ended is written down: nobody asks again, whether the controller answers or not.
    asked: list[Any] = []
    monkeypatch.setattr(slurm, "ask", lambda natives: asked.append(natives) or [Answer(Liveness.GONE)] * len(natives))
    assert [(one.state, done) for (one,), done in listed_at_once(Choice(name="slow"), 60, [])] == [
        (states.TIMEOUT, True)
    ]
    assert asked == []


def test_answers_that_come_at_once_are_all_there_is() -> None:
    ((found, is_answered),) = listed_at_once(Choice(), 60, [])
    assert ([one.id[:4] for one in found], is_answered) == (["zzzz", "aaaa", "mmmm"], True)


def test_a_file_of_a_run_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    real = os.open

    def noted(path: Any, *more: Any, **named: Any) -> int:
        opened.append(str(path))
        return real(path, *more, **named)

    monkeypatch.setattr(os, "open", noted)
    list(listed_at_once(Choice(), 60, []))
    for run in ("aaaa-digits", "mmmm-resnet"):
        files = [path for path in opened if path.startswith(f"{tmp_path}/{run}/")]
        assert {"submission.json", "state", "job.json"} <= {Path(path).name for path in files}
        assert sorted(files) == sorted(set(files))


def test_nobody_asks_again_about_a_run_that_was_cancelled_while_it_waited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = {"job_id": "7", "folder": str(tmp_path / "qqqq-slow"), "host": None, "user": None}
    made(tmp_path, "qqqq-slow", backend="slurm", native=job, state=None, is_cancelled=True)
    asked: list[Any] = []
    monkeypatch.setattr(slurm, "ask", lambda natives: asked.append(natives) or [Answer(Liveness.GONE)] * len(natives))
    for _ in range(2):
        assert [one.state for one in listed(Choice(name="slow"))] == [states.CANCELLED]
    assert len(asked) == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("90m", NOW - timedelta(minutes=90)),
        ("12h", NOW - timedelta(hours=12)),
        ("2d", NOW - timedelta(days=2)),
        ("1w", NOW - timedelta(days=7)),
        ("2026-11-20T10:00:00+00:00", datetime(2026, 11, 20, 10, tzinfo=UTC)),
    ],
)
def test_when_is_an_age_or_a_date(text: str, expected: datetime) -> None:
    assert time_of(text, NOW) == expected


@pytest.mark.parametrize("text", ["", "yesterday", "2", "d", "2026-13-01", "99999999999w"])
def test_what_is_neither_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="neither an age nor a date: give an age"):
        time_of(text, NOW)
