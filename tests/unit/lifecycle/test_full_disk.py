"""A disk that is full: ending comes before writing, and what could not be recorded is not left running."""

from __future__ import annotations

import errno
import tempfile
from pathlib import Path
from typing import Any

import pytest

from tests.support.run_folders import ALIVE, made, only_one_is_running, recorded
from trainjob.backends import containers, detached, folder
from trainjob.backends.base import NotSubmittedError
from trainjob.contract import states
from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths
from trainjob.lifecycle import cancel, prune, start
from trainjob.lifecycle.lock import locked
from trainjob.machines import processes
from trainjob.observe.status import status
from trainjob.records.submission import Submission


@pytest.fixture(autouse=True)
def _one_script_is_running(monkeypatch: pytest.MonkeyPatch) -> None:
    only_one_is_running(monkeypatch)


def refuse_writing(monkeypatch: pytest.MonkeyPatch, after: int = 0) -> None:
    written: list[Submission] = []
    write = Submission.write

    def full(submission: Submission, paths: RunPaths) -> None:
        if len(written) >= after:
            raise OSError(errno.ENOSPC, "No space left on device")
        written.append(submission)
        write(submission, paths)

    monkeypatch.setattr(Submission, "write", full)


def test_cancel_ends_the_processes_of_a_run_whose_disk_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = made(tmp_path, "abcd", state="RUNNING", native=ALIVE)
    ended: list[Any] = []

    def end(_paths: RunPaths, submission: Submission, _grace_s: float) -> None:
        ended.append(submission.native)
        monkeypatch.setattr(processes, "running", lambda _machine, scripts: [False for _ in scripts])

    monkeypatch.setattr(detached, "cancel", end)
    refuse_writing(monkeypatch)
    after = cancel.cancel(paths, grace_s=0.0)
    assert ended == [ALIVE]
    assert after.state == states.CANCELLED
    assert "could not be written" in (after.note or "")


def test_a_run_whose_script_can_not_be_started_for_a_limit_never_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = made(tmp_path, "abcd", state=None)
    submission = recorded(paths)

    def no_more_files(*_: Any, **__: Any) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(tempfile, "TemporaryFile", no_more_files)
    monkeypatch.setattr(containers, "image_digest", lambda *_: None)
    with pytest.raises(NotSubmittedError, match=r"Too many open files, so nothing was submitted: wait, or raise the"):
        start.hand_over(paths, submission, before=submission)


def test_a_cancel_and_a_resume_of_a_run_do_not_record_over_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = made(tmp_path, "abcd", state="RUNNING", native=ALIVE)
    refused: list[str] = []

    def end(_paths: RunPaths, _submission: Any, _grace_s: float) -> None:
        with pytest.raises(UserError) as error, locked(paths, "trainjob resume"):
            pass
        refused.append(error.value.text)
        monkeypatch.setattr(processes, "running", lambda _machine, scripts: [False for _ in scripts])

    monkeypatch.setattr(detached, "cancel", end)
    assert cancel.cancel(paths, grace_s=0.0).state == states.CANCELLED
    assert "locked by trainjob cancel" in refused[0]
    assert not (paths.folder / ".lock").exists()


def test_a_run_that_can_not_be_recorded_does_not_stay_running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = made(tmp_path, "abcd", state=None)
    submission = recorded(paths)
    ended: list[Any] = []
    monkeypatch.setattr(folder, "refuse_foreign_content", lambda *_: None)
    monkeypatch.setattr(detached, "start", lambda _paths, _script: ALIVE)
    monkeypatch.setattr(containers, "image_digest", lambda *_: None)
    monkeypatch.setattr(detached, "cancel", lambda _paths, submission, _grace_s: ended.append(submission.native))
    refuse_writing(monkeypatch, after=1)
    with pytest.raises(NotSubmittedError, match=r"No space left on device.*nothing was submitted"):
        start.hand_over(paths, submission, before=submission)
    assert ended == [ALIVE]


def test_a_run_whose_disk_was_full_at_its_end_has_failed(tmp_path: Path) -> None:
    paths = made(tmp_path, "abcd", state="RUNNING")
    paths.scheduler_log.write_text("job.sh: line 9: printf: write error: No space left on device\n")
    now = status(paths)
    assert (now.state, now.cause and now.cause.code) == (states.FAILED, "disk-full")


def test_a_run_that_can_not_be_removed_does_not_keep_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [made(tmp_path, run_id) for run_id in ("abcd", "efgh", "ijkl")]
    remove_run = prune.remove_run

    def refuse(paths: RunPaths, submission: Submission | None) -> None:
        if paths.id == "efgh":
            raise UserError("run efgh can't be removed")
        remove_run(paths, submission)

    monkeypatch.setattr(prune, "remove_run", refuse)
    failures = prune.remove([prune.PrunableRun(status(paths), 0) for paths in runs])
    assert list(failures) == ["efgh"]
    assert [paths.folder.exists() for paths in runs] == [False, True, False]


def test_a_run_that_is_a_link_is_removed_and_what_it_leads_to_stays(tmp_path: Path) -> None:
    real = made(tmp_path / "real", "abcd")
    link = tmp_path / "abcd"
    link.symlink_to(real.folder)
    prune.remove_run(RunPaths(link), None)
    assert real.folder.exists()
    assert not link.is_symlink()
