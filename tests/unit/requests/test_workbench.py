"""What a command says while a run that it has started trains."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.unit.cli.test_live_views import RUNNING
from trainjob.contract.paths import RunPaths
from trainjob.observe.outlook import Outlook
from trainjob.observe.status import Snapshot
from trainjob.requests import workbench

STATUSES = [
    dataclasses.replace(RUNNING, update=None),
    dataclasses.replace(RUNNING, update=300),
    dataclasses.replace(RUNNING, update=600, outlook=Outlook(0.04, 16.0, None)),
    dataclasses.replace(RUNNING, state="COMPLETED"),
]


def test_a_long_run_says_how_far_it_is_every_ten_seconds(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seconds = itertools.count(5, 5)
    clock = {"now": 0.0}

    def poll(paths: RunPaths, until: Callable[[Snapshot], bool], wait: Callable[[], None]) -> Snapshot:
        for now in STATUSES:
            for _ in range(2):
                clock["now"] = float(next(seconds))
                if until(now):
                    return now
        raise AssertionError("the run has ended")

    monkeypatch.setattr(workbench, "poll", poll)
    monkeypatch.setattr(workbench, "clock", SimpleNamespace(monotonic=lambda: clock["now"]))
    lines: list[str] = []
    assert workbench.wait(RunPaths(tmp_path), lines.append).state == "COMPLETED"
    assert lines == [
        "  10 s",
        "  update 300 of 1000, 20 s",
        "  update 600 of 1000, 30 s, about 16 s left",
    ]
