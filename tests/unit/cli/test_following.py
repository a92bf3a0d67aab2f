"""What `submit --follow` says of checkpoints that are lost, and of a run that waits."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.support.run_folders import made, only_one_is_running
from trainjob.cli import following
from trainjob.cli.look import status
from trainjob.cli.run import resume as resume_command
from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths
from trainjob.lifecycle import resume as resuming
from trainjob.observe.status import Snapshot
from trainjob.observe.status import status as find_status

PASSED_OVER = "checkpoint /runs/abcd/checkpoints/update-00000200 is passed over: index.json is missing or broken"
NOT_WRITTEN = "2 checkpoints NOT written by attempt 1"


@pytest.fixture
def lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunPaths:
    """A run that has failed, passed a checkpoint over, and could not write two others."""
    only_one_is_running(monkeypatch)
    paths = made(tmp_path, "abcd", state="FAILED")
    progress: dict[str, Any] = {"attempt": 1, "epoch": 1, "update": 300}
    paths.progress.write_text(json.dumps({**progress, "passed_over": [PASSED_OVER], "checkpoints_not_written": 2}))
    return paths


def test_follow_shows_each_checkpoint_that_is_lost_once(lost: RunPaths, capfd: pytest.CaptureFixture[str]) -> None:
    assert following.to_the_end(lost, as_json=False) == 1
    shown = capfd.readouterr().err
    assert (shown.count(PASSED_OVER), shown.count(NOT_WRITTEN)) == (1, 1)


def test_status_shows_each_checkpoint_that_is_lost(lost: RunPaths) -> None:
    shown = CliRunner().invoke(status.app, ["status", "abcd"]).output
    assert [line.split(maxsplit=1) for line in shown.splitlines() if "checkpoint" in line] == [
        ["checkpoints", PASSED_OVER],
        ["checkpoints", NOT_WRITTEN],
    ]


def test_resume_shows_each_checkpoint_that_is_lost(lost: RunPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    def started(_: object) -> None:
        raise UserError("it begins")

    monkeypatch.setattr(resuming, "resume", started)
    monkeypatch.setattr(resuming, "passed_over", lambda _: [PASSED_OVER])
    shown = CliRunner().invoke(resume_command.app, ["abcd"]).output
    assert shown.splitlines() == ["warning: 2 checkpoints of the last attempt NOT written", f"warning: {PASSED_OVER}"]


def test_follow_says_why_a_run_waits_whenever_the_reason_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    paths = made(tmp_path, "abcd", state="COMPLETED")
    ended = find_status(paths)
    first, held = "waits because other jobs have priority (Priority)", "waits because its user holds it (JobHeldUser)"
    notes = [None, first, f"{first}; may start at 2026-11-23 18:00:00", f"{first}; may start at 2026-11-23 18:05:00"]

    def polled(_paths: RunPaths, until: Callable[[Snapshot], bool]) -> Snapshot:
        for note in [*notes, held, held, first]:
            assert not until(replace(ended, state="PENDING", note=note))
        assert until(ended)
        return ended

    monkeypatch.setattr(following, "poll", polled)
    following.to_the_end(paths, as_json=True)
    assert capfd.readouterr().err.splitlines() == [f"PENDING: {first}", f"PENDING: {held}", f"PENDING: {first}"]


def test_a_disk_that_stays_full_is_reported_once_and_again_after_it_had_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    paths = made(tmp_path, "abcd", state="COMPLETED")
    ended, refused = find_status(paths), "WARNING: the checkpoint of update {} was NOT written: [Errno 28]"

    def polled(_paths: RunPaths, until: Callable[[Snapshot], bool]) -> Snapshot:
        for update in (3, 6, 9, None, 15, 18):
            trouble = None if update is None else refused.format(update)
            assert not until(replace(ended, state="RUNNING", trouble=trouble))
        assert until(ended)
        return ended

    monkeypatch.setattr(following, "poll", polled)
    following.to_the_end(paths, as_json=True)
    assert capfd.readouterr().err.splitlines() == [refused.format(3), refused.format(15)]
