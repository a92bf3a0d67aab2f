"""Prune: what would go, and that it goes whole."""

from __future__ import annotations

import os
import shutil
import time
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from tests.support.run_folders import made
from tests.support.told_back_end import told_as
from trainjob.backends.base import Answer, Liveness
from trainjob.contract import clock, states
from trainjob.contract.paths import home
from trainjob.lifecycle import prune
from trainjob.lifecycle.lock import locked
from trainjob.observe import index
from trainjob.observe.status import status


def chosen(days: float = 0, in_states: frozenset[str] = states.ENDED, keep: int = 0) -> list[str]:
    found = prune.candidates(older_than=timedelta(days=days), in_states=in_states, keep=keep)
    return [one.status.id for one in found]


@pytest.fixture
def three(tmp_path: Path) -> None:
    made(tmp_path, "mid", submitted_at="2026-01-02T00:00:00+00:00", state="FAILED")
    made(tmp_path, "old", submitted_at="2026-01-01T00:00:00+00:00")
    made(tmp_path, "new", submitted_at="2999-01-01T00:00:00+00:00")


@pytest.mark.usefixtures("three")
def test_old_runs_come_oldest_first() -> None:
    assert chosen() == ["old", "mid"]


@pytest.mark.usefixtures("three")
def test_the_newest_and_other_states_stay() -> None:
    assert chosen(keep=2) == ["old"]
    assert chosen(keep=4) == []
    assert chosen(in_states=frozenset({"FAILED"})) == ["mid"]


@pytest.mark.usefixtures("three")
def test_young_runs_stay() -> None:
    assert chosen(days=365 * 900) == []


@pytest.mark.usefixtures("three")
def test_a_run_is_old_from_the_moment_on_that_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    of_mid = datetime.fromisoformat("2026-01-02T00:00:00+00:00").timestamp()
    for later_s, found in ((86_399, ["old"]), (86_400, ["old", "mid"])):
        monkeypatch.setattr(clock, "time", lambda later_s=later_s: of_mid + later_s)
        assert chosen(days=1) == found


def test_a_removed_run_leaves_nothing(tmp_path: Path) -> None:
    paths = made(tmp_path / "runs", "abcd")
    (tmp_path / "runs" / ".abcd.removed").mkdir()
    (tmp_path / "runs" / ".abcd.removed" / "left by a cut removal").touch()
    paths.rank_log(0).write_text("12345")
    found = prune.candidates(older_than=timedelta(0), in_states=states.ENDED, keep=0)
    assert found[0].size_bytes > 5
    prune.remove(found)
    assert list((tmp_path / "runs").iterdir()) == []
    assert index.ids() == []


def test_a_run_that_another_command_works_on_is_not_removed(tmp_path: Path) -> None:
    paths = made(tmp_path, "abcd")
    found = prune.candidates(older_than=timedelta(0), in_states=states.ENDED, keep=0)
    with locked(paths, "trainjob resume"):
        assert "is locked by trainjob resume" in str(prune.remove(found)["abcd"])
    assert paths.state.exists()


def test_a_failed_run_whose_job_the_scheduler_still_has_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dead node's job is requeued minutes later, whatever its script had recorded."""
    told_as(monkeypatch, "detached").answer = Answer(Liveness.ALIVE, states.RUNNING)
    paths = made(tmp_path, "abcd", state="FAILED")
    assert chosen() == []
    assert "may start it again" in str(prune.remove([prune.PrunableRun(status(paths), 0)])["abcd"])
    assert paths.state.exists()


def test_runs_whose_folders_are_gone_are_forgotten(tmp_path: Path) -> None:
    for name in ("gone", "fresh"):
        shutil.rmtree(made(tmp_path, name).folder)
    made(tmp_path, "here")
    # A submission that is under way is in the index before its folder exists.
    os.utime(home() / "index/gone", (0, time.time() - 3600), follow_symlinks=False)
    hidden = tmp_path / ".gone.123.part"
    hidden.mkdir()
    assert prune.forget_missing() == []  # the index alone knows where the hidden folder is
    hidden.rmdir()
    assert prune.forget_missing() == ["gone"]
    assert index.ids() == ["fresh", "here"]


@pytest.mark.usefixtures("three")
def test_what_an_interrupted_submission_has_left_is_found_unless_somebody_works_on_it(tmp_path: Path) -> None:
    made(tmp_path, "abcd-mine", state="COMPLETED")
    (folder,) = {paths.folder.parent for paths in index.every_run()}
    left = [folder / ".efgh-mine.99999999.part", folder / ".efgh-mine.removed"]
    for name in (*left, folder / f".efgh-mine.{os.getpid()}.part", folder / ".git", folder / ".cache.1.part"):
        name.mkdir()
        (name / "file").write_text("12345")
    (folder / ".efgh-link.removed").symlink_to(left[0])
    (folder / ".efgh-file.removed").touch()
    assert prune.leftovers(older_than=timedelta()) == left
    assert prune.size(left[0]) == 5
    assert prune.leftovers(older_than=timedelta(days=1)) == []


def test_a_run_whose_age_is_not_known_stays_and_is_named(tmp_path: Path) -> None:
    paths = made(tmp_path, "abcd")
    paths.submission.write_text("{")
    warned: list[str] = []
    found = prune.candidates(older_than=timedelta(0), in_states=states.ENDED, keep=0, warn=warned.append)
    assert found == []
    assert len(warned) == 1
    assert warned[0].startswith("run abcd stays, because its age is not known: submission.json")
