"""Iterable Datasets: the same samples in the same micro batches for any number of instances, and on going on."""

from __future__ import annotations

from pathlib import Path

import torch

from tests.support.runs_at_work import make_run, tensors, train, train_here
from tests.support.streams import JOB, MINE, rows


def test_a_reading_process_gives_the_same() -> None:
    assert rows(1, workers=2) == rows(1)


def test_two_instances_end_with_the_weights_of_one(tmp_path: Path) -> None:
    one = make_run(tmp_path / "one", {"mine.py": MINE}, updates=6, **{**JOB, "accumulation": 2})
    assert train_here(one) == 0
    two = make_run(tmp_path / "two", {"mine.py": MINE}, updates=6, instances=2, **JOB)
    assert train(two, 2) == [0, 0]
    for name, weight in tensors(one).items():
        assert torch.allclose(weight, tensors(two)[name], rtol=0, atol=1e-12), name
