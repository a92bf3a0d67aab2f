"""The lock that needs no flock: one holder, taken over from holders that are lost or of an older attempt."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from unittest.mock import Mock

import pytest

from trainjob.records import step_lock as locks
from trainjob.records.step_lock import Lock, LostError, Owner

FIRST = Owner("run-a", 1, "n1")
LOST_AFTER_S = 0.4


@pytest.fixture(autouse=True)
def _lost_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "LOST_AFTER_S", LOST_AFTER_S)


class WaitedError(Exception):
    """A waiter would wait on."""


def never_waits(_seconds: float) -> None:
    raise WaitedError


def lock(folder: Path, owner: Owner, pause: object = never_waits) -> Lock:
    return Lock(folder, owner, pause)  # type: ignore[arg-type]


def acquire(one: Lock, done: str = "nothing") -> str | None:
    return one.acquire(lambda word: word == done, lambda _who: None)


def test_a_second_one_waits_and_learns_for_whom(tmp_path: Path) -> None:
    reported: list[str] = []
    assert acquire(lock(tmp_path, FIRST)) is None
    with pytest.raises(WaitedError):
        lock(tmp_path, Owner("run-b", 1, "n2")).acquire(lambda _: False, reported.append)
    assert reported == ["run-a 1 n1"]


def test_what_is_released_as_done_is_not_held_again(tmp_path: Path) -> None:
    first = lock(tmp_path, FIRST)
    acquire(first)
    first.release("done 1")
    assert acquire(lock(tmp_path, Owner("run-a", 2, "n1")), done="done 1") == "done 1"
    assert acquire(lock(tmp_path, Owner("run-a", 2, "n1")), done="done 2") is None


def test_a_later_attempt_of_the_run_takes_over_at_once_and_an_earlier_one_waits(tmp_path: Path) -> None:
    first, later = lock(tmp_path, FIRST), lock(tmp_path, Owner("run-a", 2, "n2"))
    acquire(first)
    assert acquire(later) is None
    with pytest.raises(WaitedError):
        acquire(lock(tmp_path, FIRST))


def test_the_holder_that_was_fenced_hears_of_it_when_it_next_shows_that_it_lives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "BEAT_S", 0.0)
    first = lock(tmp_path, FIRST)
    acquire(first)
    first.beat()
    acquire(lock(tmp_path, Owner("run-a", 2, "n2")))
    with pytest.raises(LostError, match="another process took over"):
        first.beat()
    first.release("done 1")
    with pytest.raises(WaitedError):  # what the fenced one says counts for nothing
        acquire(lock(tmp_path, Owner("run-b", 1, "n3")), done="done 1")


def test_a_holder_that_shows_no_sign_of_life_is_taken_over_from_and_one_that_does_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "BEAT_S", 0.0)
    monkeypatch.setattr(locks, "POLL_S", 0.01)
    first, until = lock(tmp_path, FIRST), time.monotonic() + 3 * LOST_AFTER_S
    acquire(first)

    def while_it_lives(seconds: float) -> None:
        if time.monotonic() > until:
            raise WaitedError
        first.beat()
        time.sleep(seconds)

    with pytest.raises(WaitedError):
        acquire(lock(tmp_path, Owner("run-b", 1, "n2"), while_it_lives))
    began_at = time.monotonic()
    assert acquire(lock(tmp_path, Owner("run-b", 1, "n2"), time.sleep)) is None
    assert time.monotonic() - began_at >= LOST_AFTER_S


def test_a_number_that_is_taken_is_not_taken_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A waiter that lists the folder late, as NFS lets it, believes that the lock was never held."""
    first, late = lock(tmp_path, FIRST), lock(tmp_path, Owner("run-b", 1, "n2"))
    acquire(first)
    looks = iter([(0, "", None)])
    newest = late.newest
    monkeypatch.setattr(late, "newest", lambda: next(looks, None) or newest())
    with pytest.raises(WaitedError):
        acquire(late)


def test_a_folder_that_is_removed_takes_the_lock_along(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "BEAT_S", 0.0)
    folder = tmp_path / "lock"
    holder = lock(folder, FIRST)
    assert acquire(holder) is None

    def removed(_seconds: float) -> None:
        shutil.rmtree(folder)

    waiter = lock(folder, Owner("run-b", 1, "n2"), removed)
    assert acquire(waiter) is None
    shutil.rmtree(folder)
    with pytest.raises(LostError, match="another process removed"):
        holder.beat()
    for one in (holder, waiter):
        one.release("done")
    assert not folder.exists()


@pytest.mark.parametrize("refused", [PermissionError(13, "no"), OSError(116, "stale")])
def test_a_folder_that_cannot_be_searched_for_a_while_ends_no_holder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: OSError
) -> None:
    monkeypatch.setattr(locks, "BEAT_S", 0.0)
    holder = lock(tmp_path / "lock", FIRST)
    assert acquire(holder) is None
    with monkeypatch.context() as patch:
        patch.setattr(Path, "exists", Mock(side_effect=refused))
        holder.beat()
    assert not (tmp_path / "lock/000002").exists()
    (tmp_path / "lock/000002").touch()
    with pytest.raises(LostError, match="took over"):
        holder.beat()


@pytest.mark.parametrize("attempt", ["²", "9" * 5000, "-1", ""])
def test_an_attempt_that_is_no_number_is_no_older_one(tmp_path: Path, attempt: str) -> None:
    (tmp_path / "000001").write_text(f"held {FIRST.run} {attempt} n1\n")
    with pytest.raises(WaitedError):
        acquire(lock(tmp_path, FIRST._replace(attempt=5)))


def test_other_names_in_the_folder_are_no_numbers(tmp_path: Path) -> None:
    for name in ("²", "٣", "-1", "000001.part", "note"):
        (tmp_path / name).touch()
    (tmp_path / "000001").mkdir()
    one = lock(tmp_path, FIRST, time.sleep)
    assert acquire(one) is None  # nobody touches the folder of that name
    assert one.newest()[0] == 2
