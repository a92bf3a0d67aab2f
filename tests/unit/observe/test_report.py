"""A report is computed from the folder alone."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from tests.support.records import record
from trainjob.contract.paths import RunPaths
from trainjob.observe.report.report import Report, report
from trainjob.observe.report.series import Series
from trainjob.records import submission as submissions
from trainjob.records.job import ContractError
from trainjob.records.metrics import in_columns

PHASES = {"data": 0.5, "compute": 1.0, "communication": 0.5, "checkpoint": 0.0}


def line(kind: str, update: int, **more: Any) -> str:
    training = {"samples_per_s": 100.0, "seconds": PHASES} if kind == "train" else {}
    return json.dumps({"kind": kind, "attempt": 1, "epoch": 1, "update": update, "loss": 1.0, **training, **more})


def reported(folder: Path, *lines: str, curves: Series | None = None) -> Report:
    paths = RunPaths(folder)
    paths.job.write_text(record(2, name="digits").to_json())
    paths.metrics.write_text("\n".join(lines))
    return report(paths, submissions.read(paths), curves)


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


def test_a_run_that_trains_on_has_the_epoch_of_its_last_update(tmp_path: Path) -> None:
    """A command may evaluate once and then no more."""
    found = reported(tmp_path, line("evaluation", 2, epoch=1), line("train", 2, epoch=1), line("train", 9, epoch=4))
    assert (found.updates, found.epochs) == (9, 4)


def test_a_torn_last_line_is_passed_over(tmp_path: Path) -> None:
    found = reported(tmp_path, line("train", 1), line("train", 2)[:-9])
    assert found.updates == 1


@pytest.mark.parametrize("odd", ['{"kind": "\\ud800"}', "[" * 250 + "]" * 250, '{"a": 1} {"b": 2}', "NaN"])
def test_a_line_that_only_one_parser_takes_costs_no_other_line(tmp_path: Path, odd: str) -> None:
    curves = Series()
    paths = RunPaths(tmp_path)
    paths.job.write_text(record().to_json())
    paths.metrics.write_text("\n".join([line("train", 1), odd, line("train", 2, loss=float("nan")), ""]))
    found = report(paths, submissions.read(paths), curves)
    assert (found.updates, found.damaged_lines) == (2, 0 if "ud800" in odd else 1)
    assert curves.training.curve("loss") == [(1.0, 1.0)]


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ContractError, match="is this a run directory"):
        report(RunPaths(tmp_path), submissions.read(RunPaths(tmp_path)))


def odd_lines(seed: int) -> list[str]:
    """Return lines as a run writes them, of two attempts, and some that are odd in one way each."""
    draw = random.Random(seed)
    lines: list[dict[str, Any]] = []
    for attempt, updates in ((1, range(1, 900)), (2, range(600, 1400))):
        lines.append({"kind": "begin", "attempt": attempt, "update": updates[0] - 1, "time": 1e9 * attempt})
        for update in updates:
            seconds = {phase: draw.random() for phase in PHASES}
            figures = {"loss": draw.random(), "accuracy": None, "learning_rate": 0.1, "samples_per_s": draw.random()}
            lines.append({"kind": "train", "attempt": attempt, "update": update, **figures, "seconds": seconds})
            if update % 100 == 0:
                lines.append({"kind": "evaluation", "attempt": attempt, "update": update, "loss": draw.random()})
    # One in most blocks, and none in some.
    for at in draw.sample(range(len(lines)), 12):
        key = draw.choice(["kind", "attempt", "update", "loss", "samples_per_s", "seconds"])
        value: Any = draw.choice([None, True, 3, -1, "x", [], {"data": 1.0}, 10**30, 10**400, float("nan"), 1e305])
        lines[at] = {**lines[at], key: value}
    return [json.dumps(line) for line in lines]


def everything(curves: Series) -> str:
    counts = (curves.attempts, curves.newest, curves.repeated_updates, curves.marks)
    return repr((counts, vars(curves.training), vars(curves.held_out)))


@pytest.mark.parametrize("seed", range(12))
def test_lines_read_as_columns_give_what_they_give_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    events = ((1, 1, "began\tn1"), (1.1, 1, "ended\tREQUEUED 0"), (2, 2, "began\tn1"), (2.1, 2, "ended\tCOMPLETED 0"))
    RunPaths(tmp_path).events.write_text(
        "".join(f"{int(at * 1e9)}\t{attempt}\t{what}\n" for at, attempt, what in events)
    )
    lines, curves, one_by_one = odd_lines(seed), Series(), Series()
    found = reported(tmp_path, *lines, curves=curves)
    monkeypatch.setattr("trainjob.records.metrics.in_columns", lambda block: (None, block))
    assert repr(reported(tmp_path, *lines, curves=one_by_one)) == repr(found)
    assert everything(one_by_one) == everything(curves)
    assert (found.updates, found.goodput is None) == (1399, False)


def test_what_a_rank_writes_is_read_as_columns() -> None:
    lines = [json.loads(line("train", update)) for update in range(1, 300)]
    evaluation = json.loads(line("evaluation", 100))
    for accuracy in ({}, {"accuracy": None}):
        each = [{**one, "accuracy": 0.5, "learning_rate": 0.1, **accuracy} for one in lines]
        intervals, others = in_columns([*each[:100], evaluation, *each[100:]])
        assert intervals is not None
        assert (len(intervals.updates), others) == (299, [evaluation])
