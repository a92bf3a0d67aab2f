"""What is cancelled, and what of it is recorded; the back end says what a test wants."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.clock import sleeps_skipped
from tests.support.run_folders import made, made_element, recorded
from tests.support.told_back_end import Told, told_as
from trainjob.backends import containers, mirror
from trainjob.backends.base import Answer, Liveness
from trainjob.contract import states
from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths
from trainjob.lifecycle import cancel
from trainjob.lifecycle.lock import locked
from trainjob.records import submission as submissions
from trainjob.records.submission import Submission


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Told:
    back_end = told_as(monkeypatch, "detached")
    back_end.answer = Answer(Liveness.ALIVE)
    return back_end


@pytest.fixture
def partitions(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    removed: list[str] = []
    monkeypatch.setattr(containers, "remove_partitions", lambda paths, _: removed.append(paths.id))
    return removed


def ends(told: Told, monkeypatch: pytest.MonkeyPatch, then: Callable[[], object] = lambda: None) -> None:
    """Have the back end's cancel end the run, as one does."""
    cancelled = told.cancel

    def end(paths: RunPaths, submission: Submission, grace_s: float) -> None:
        cancelled(paths, submission, grace_s)
        told.answer = Answer(Liveness.GONE)
        then()

    monkeypatch.setattr(told, "cancel", end)


def test_a_run_at_work_is_ended_and_recorded_before_and_after(
    told: Told, tmp_path: Path, partitions: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = made(tmp_path, "abcd", state="RUNNING", native={"job_id": "7"})
    before: list[Any] = []
    ends(told, monkeypatch, lambda: before.append((recorded(paths).cancelled_at, recorded(paths).is_cancelled)))
    after = cancel.cancel(paths, grace_s=12.0)
    assert (told.cancelled, told.grace_s) == ([{"job_id": "7"}], [12.0])
    assert after.state == states.CANCELLED
    assert [(at is not None, is_cancelled) for at, is_cancelled in before] == [(True, False)]
    assert recorded(paths).is_cancelled
    settled = submissions.settled(paths, 1)
    assert settled is not None
    assert settled.state == states.CANCELLED
    assert partitions == []


@pytest.mark.parametrize("state", ["COMPLETED", "FAILED"])
def test_a_run_that_has_ended_stays_as_it_is_and_loses_its_partition(
    told: Told, tmp_path: Path, partitions: list[str], state: str
) -> None:
    paths = made(tmp_path, "abcd", state=state)
    told.answer = Answer(Liveness.GONE)
    assert cancel.cancel(paths, grace_s=0.0).state == state
    assert (told.cancelled, partitions, recorded(paths).cancelled_at) == ([], ["abcd"], None)
    paths.submission.unlink()
    cancel.cancel(paths, grace_s=0.0)
    assert partitions == ["abcd"]


@pytest.mark.parametrize("liveness", [Liveness.UNKNOWN, Liveness.ALIVE])
def test_a_job_that_may_start_again_or_can_not_be_seen_is_cancelled_although_the_run_has_ended(
    told: Told, tmp_path: Path, liveness: Liveness, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = made(tmp_path, "abcd", state="FAILED", native={"job_id": "7"})
    told.answer = Answer(liveness, states.PENDING if liveness is Liveness.ALIVE else None, note="it waits")
    ends(told, monkeypatch)
    cancel.cancel(paths, grace_s=0.0)
    assert told.cancelled == [{"job_id": "7"}]


def test_what_is_left_of_a_lost_run_is_ended_and_it_stays_lost(
    told: Told, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = made(tmp_path, "abcd", state="RUNNING", native={"job_id": "7"})
    told.answer = Answer(Liveness.GONE)
    ends(told, monkeypatch)
    assert cancel.cancel(paths, grace_s=0.0).state == states.LOST
    assert told.cancelled == [{"job_id": "7"}]
    assert (recorded(paths).cancelled_at, submissions.settled(paths, 1)) == (None, None)


@pytest.mark.usefixtures("partitions")
def test_what_was_started_by_hand_and_a_copy_are_not_ended(told: Told, tmp_path: Path) -> None:
    paths = made(tmp_path, "abcd", state="RUNNING", native={"job_id": "7"})
    recorded(paths).write(paths)
    copy = RunPaths(tmp_path / "copy")
    copy.folder.mkdir()
    for name in ("submission", "job", "state", "attempt"):
        getattr(copy, name).write_bytes(getattr(paths, name).read_bytes())
    with pytest.raises(UserError, match=rf"is a copy: what runs belongs to {paths.folder}") as refused:
        cancel.cancel(copy, grace_s=0.0)
    assert refused.value.cure == f"To end that run: trainjob cancel {paths.folder}"
    paths.submission.unlink()
    with pytest.raises(UserError, match="run abcd was not submitted by trainjob"):
        cancel.cancel(paths, grace_s=0.0)
    assert told.cancelled == []


def test_elements_with_submissions_of_their_own_are_recorded_too(
    told: Told, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = made(tmp_path, "abcd", state="RUNNING", native={"job_id": "7"})
    for number in (0, 1):
        made_element(paths, number, "RUNNING")
    recorded(paths).replace(native={"job_id": "8", "element": 1}).write(paths.of_element(1))
    ends(told, monkeypatch)
    cancel.cancel(paths, grace_s=0.0)
    assert [paths.of_element(number).submission.exists() for number in (0, 1)] == [False, True]
    assert recorded(paths.of_element(1)).is_cancelled
    assert recorded(paths).is_cancelled


def test_what_a_full_disk_did_not_take_at_first_is_recorded_when_there_is_room(
    told: Told, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = made(tmp_path, "abcd", state="RUNNING", native={"job_id": "7"})
    write, refused = Submission.write, [1]

    def full(submission: Submission, where: RunPaths) -> None:
        if refused[0]:
            refused[0] -= 1
            raise OSError(28, "No space left on device")
        write(submission, where)

    monkeypatch.setattr(Submission, "write", full)
    ends(told, monkeypatch)
    after = cancel.cancel(paths, grace_s=0.0)
    assert (after.state, recorded(paths).is_cancelled) == (states.CANCELLED, True)
    assert recorded(paths).cancelled_at is not None
    assert "could not be written" not in (after.note or "")
    assert submissions.settled(paths, 1) is not None


def test_a_lock_of_another_command_keeps_no_run_alive(
    told: Told, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = made(tmp_path, "abcd", state="RUNNING", native={"job_id": "7"})
    ends(told, monkeypatch)
    waited = sleeps_skipped(monkeypatch)
    with locked(paths, "trainjob resume"):
        cancel.cancel(paths, grace_s=5.0)
    assert told.cancelled == [{"job_id": "7"}]
    assert 34.5 < sum(waited) < 35.5


def test_only_what_is_at_work_is_asked_to_stop(told: Told, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(mirror, "ask_to_stop", lambda paths, _: asked.append(paths.id))
    assert cancel.stop(made(tmp_path, "work", state="RUNNING")).state == states.RUNNING
    told.answer = Answer(Liveness.GONE)
    cancel.stop(made(tmp_path, "over", state="FAILED"))
    assert asked == ["work"]
