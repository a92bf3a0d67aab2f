"""What an image's health check says of the run in its container."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from tests.support.records import record
from tests.support.runs_at_work import settings
from trainjob.launch.witness import health


def run_folder(folder: Path, *, beat_s_ago: float, attempt: int = 1) -> dict[str, str]:
    (folder / "job.json").write_text(record(train=settings(stall_timeout_s=600.0)).to_json())
    progress = {"attempt": attempt, "heartbeat": time.time() - beat_s_ago}
    (folder / "progress.json").write_text(json.dumps(progress))
    return {"TRAINJOB_RUN_DIR": str(folder), "TRAINJOB_ATTEMPT": "1"}


def test_a_container_without_a_run_is_healthy() -> None:
    assert health.main({}) == 0


def test_a_run_that_has_said_nothing_yet_is_healthy(tmp_path: Path) -> None:
    assert health.main({"TRAINJOB_RUN_DIR": str(tmp_path), "TRAINJOB_ATTEMPT": "1"}) == 0


def test_a_run_that_goes_on_is_healthy(tmp_path: Path) -> None:
    assert health.main(run_folder(tmp_path, beat_s_ago=1)) == 0


def test_a_run_that_has_stalled_is_not(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert health.main(run_folder(tmp_path, beat_s_ago=700)) == 1
    assert capsys.readouterr().out == "no progress for 700 s\n"


def test_an_earlier_attempts_silence_does_not_count(tmp_path: Path) -> None:
    assert health.main({**run_folder(tmp_path, beat_s_ago=700), "TRAINJOB_ATTEMPT": "2"}) == 0
