"""Prune asks where a run may still continue."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from tests.support.run_folders import GONE, made
from trainjob.contract import states
from trainjob.lifecycle import prune


def test_runs_that_go_on_stay(tmp_path: Path) -> None:
    made(tmp_path, "abcd", state="RUNNING", native={**GONE, "host": "another-host"})
    gone = prune.candidates(older_than=timedelta(0), in_states=states.ENDED, keep=0)
    assert gone == []
