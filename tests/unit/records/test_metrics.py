"""metrics.jsonl has one typed line: a damaged one is counted and left out, and what is no figure is a gap."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from trainjob.contract.paths import RunPaths
from trainjob.records import metrics

PHASES = {"data": 0.5, "compute": 1.0, "communication": 0.5, "checkpoint": 0.0}
TRAIN = {"kind": "train", "attempt": 1, "epoch": 1, "update": 10, "loss": 1.0, "seconds": PHASES}


def written(folder: Path, *lines: object) -> metrics.Reader:
    paths = RunPaths(folder)
    paths.metrics.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return metrics.Reader(paths)


@pytest.mark.parametrize(
    "damaged",
    [
        {},
        {"kind": "train"},
        {"update": 3},
        {**TRAIN, "update": "3"},
        {**TRAIN, "update": 1 << 60},
        {**TRAIN, "attempt": [1]},
        {**TRAIN, "attempt": True},
        {**TRAIN, "seconds": "long"},
        {**TRAIN, "seconds": {"data": "long"}},
        {"kind": "begin", "attempt": 1, "update": 0, "time": -1},
        [],
    ],
)
def test_a_damaged_line_is_counted_and_left_out(tmp_path: Path, damaged: object) -> None:
    lines = written(tmp_path, TRAIN, damaged, {**TRAIN, "update": 20})
    assert [line.update for line in lines.new()] == [10, 20]
    assert lines.damaged == 1


def test_a_line_of_a_kind_that_a_newer_version_writes_is_left_out_and_not_damaged(tmp_path: Path) -> None:
    lines = written(tmp_path, {"kind": "weather"}, TRAIN)
    assert [(line.number, line.update) for line in lines.new()] == [(2, 10)]
    assert (lines.damaged, lines.count) == (0, 2)


@pytest.mark.parametrize("loss", [None, "low", True, [1.0], 10**400])
def test_what_is_no_figure_is_none(loss: Any) -> None:
    assert metrics.parse({**TRAIN, "loss": loss}).loss is None
    assert math.isnan(metrics.parse({**TRAIN, "loss": math.nan}).loss or 0.0)


def test_a_writer_appends_what_the_reader_reads_on(tmp_path: Path) -> None:
    paths = RunPaths(tmp_path)
    lines, writer = metrics.Reader(paths), metrics.Writer(paths, attempt=2)
    assert list(lines.new()) == []
    writer.append("evaluation", 1, 10, {"loss": 0.5, "accuracy": None, "samples": 360, "seconds": 1.5})
    (line,) = lines.new()
    assert (line.kind, line.attempt, line.update, line.loss, line.samples, line.seconds) == (
        *("evaluation", 2, 10),
        *(0.5, 360, 1.5),
    )
    writer.append("train", 2, 20, {"loss": 0.25, "seconds": PHASES})
    writer.close()
    (line,) = lines.new()
    assert (line.number, line.phases, line.seconds) == (2, PHASES, 2.0)
