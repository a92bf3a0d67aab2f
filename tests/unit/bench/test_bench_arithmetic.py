"""What bench makes of what was measured."""

import json

import pytest

from trainjob.bench.loader import Loading, verdict
from trainjob.bench.scaling import Epoch, _scale, epochs_of
from trainjob.contract.paths import RunPaths


def rows(*figures):
    return [Loading(*figure) for figure in figures]


def test_loaders_bind_from_the_first_number_that_their_best_worker_count_cannot_feed():
    told = verdict(rows((1, 0, 50.0), (1, 2, 150.0), (2, 0, 60.0), (2, 2, 180.0), (4, 2, 200.0)), 100.0)
    assert told.startswith("loader-bound from 2 instances a host on: they take 200 samples/s and 180 come.")
    assert "--workers 2 is the best" in told


def test_workers_that_do_not_help_are_not_recommended():
    told = verdict(rows((1, 0, 90.0), (1, 2, 95.0)), 100.0)
    assert "More workers don't help" in told


def test_enough_is_said_to_be_enough():
    told = verdict(rows((1, 0, 150.0), (2, 0, 200.0)), 100.0)
    assert told == "not loader-bound up to 2 instances a host: 200 samples/s come and 200 are taken"


def test_an_epoch_is_what_lies_between_two_lines(tmp_path):
    seconds = {"data": 1.0, "compute": 2.0, "communication": 1.0}
    lines = [{"kind": "train", "update": 10, "seconds": seconds}, {"kind": "evaluation", "update": 10, "seconds": 9}]
    lines.append({"kind": "train", "update": 20, "seconds": {**seconds, "compute": 6.0}})
    paths = RunPaths(tmp_path)
    paths.metrics.write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = list(epochs_of(paths, 8))
    assert [(epoch.samples, epoch.total_s) for epoch in found] == [(80, 4.0), (80, 8.0)]


def test_efficiency_is_against_the_first_rows_instances():
    epochs = [Epoch(80, {"data": 1.0, "compute": second - 1.0}) for second in (4.0, 2.0, 8.0)]
    first = _scale(2, 8, epochs, None)
    assert first.efficiency == 1.0
    assert (first.seconds_per_epoch, first.fastest_epoch_s, first.slowest_epoch_s) == (4.0, 2.0, 8.0)
    assert first.data_share == pytest.approx(0.25)
    assert _scale(4, 16, epochs, first).efficiency == pytest.approx(0.5)
