"""When the held-out set is evaluated: by the run's own epochs, wherever an attempt began."""

from __future__ import annotations

import pytest

from trainjob.train import evaluation


@pytest.mark.parametrize(
    ("epoch_samples", "held_out", "due"),
    [
        (1000, 100, [1, 2, 3, 4, 5, 6]),
        (1000, 500, [1, 2, 3, 4, 5, 6]),
        (1000, 501, [2, 4, 6]),
        (1000, 1500, [3, 6]),
        (100, 10_000, []),
    ],
)
def test_training_takes_twice_the_held_out_samples_between_two_evaluations(
    epoch_samples: int, held_out: int, due: list[int]
) -> None:
    assert [epoch for epoch in range(1, 7) if evaluation.is_due(epoch, epoch_samples, held_out)] == due
