"""A report is computed from the folder alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from trainjob.contract.job import ContractError
from trainjob.contract.paths import RunPaths
from trainjob.report.report import Report, report

PHASES = {"data": 0.5, "compute": 1.0, "communication": 0.5, "checkpoint": 0.0}


def line(kind: str, update: int, **more: Any) -> str:
    training = {"samples_per_s": 100.0, "seconds": PHASES} if kind == "train" else {}
    return json.dumps({"kind": kind, "attempt": 1, "epoch": 1, "update": update, "loss": 1.0, **training, **more})


def reported(folder: Path, *lines: str) -> Report:
    paths = RunPaths(folder)
    job = {"contract": 1, "name": "digits", "asked": {}, "plan": {"topology": {"instances": 2}}}
    paths.job.write_text(json.dumps({**job, "train": None, "command": None}))
    paths.metrics.write_text("\n".join(lines))
    return report(paths)


def test_a_run_that_has_not_begun_has_no_figures(tmp_path: Path) -> None:
    found = reported(tmp_path)
    assert (found.instances, found.state, found.updates, found.samples_per_s, found.seconds) == (
        2,
        None,
        None,
        None,
        None,
    )


def test_rates_are_weighted_by_the_time_they_lasted(tmp_path: Path) -> None:
    slow = line("train", 2, samples_per_s=40.0, seconds={"compute": 6.0})
    found = reported(tmp_path, line("train", 1), slow)
    assert found.samples_per_s == pytest.approx((100 * 2 + 40 * 6) / 8)
    assert found.seconds == {"data": 0.5, "compute": 7.0, "communication": 0.5, "checkpoint": 0.0}


def test_an_update_that_a_later_attempt_repeats_counts_once(tmp_path: Path) -> None:
    again = line("train", 2, attempt=2, loss=0.5)
    found = reported(tmp_path, line("train", 1), line("train", 2), again)
    assert (found.updates, found.loss) == (2, 0.5)
    assert found.seconds is not None
    assert found.seconds["compute"] == 2.0


def test_the_last_evaluation_counts(tmp_path: Path) -> None:
    first = line("evaluation", 1, accuracy=0.5, samples=360)
    last = line("evaluation", 2, accuracy=0.98, samples=360, epoch=2)
    found = reported(tmp_path, first, line("train", 2), last)
    assert (found.held_out_accuracy, found.held_out_samples, found.epochs) == (0.98, 360, 2)


def test_a_torn_last_line_is_passed_over(tmp_path: Path) -> None:
    found = reported(tmp_path, line("train", 1), line("train", 2)[:-9])
    assert found.updates == 1


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ContractError, match="is this a run directory"):
        report(RunPaths(tmp_path))
