"""When a checkpoint is due."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.support.runs_at_work import settings
from trainjob.train.due import Due, best_interval_s
from trainjob.train.world import RankPlace, World

ALONE = World(RankPlace(0, 0, 1, torch.device("cpu")))


class Second(World):
    """A rank that is told what rank 0 chose."""

    def from_first(self, number: int) -> int:
        return 7


def auto(world: World = ALONE, **changes: Any) -> Due:
    return Due(settings(checkpoint_every="auto", failure_every_s=3600.0, **changes), world, 100)


def test_multiples_of_a_number() -> None:
    assert [one for one in range(1, 31) if Due(settings(checkpoint_every=10), ALONE, 0).at(one)] == [10, 20, 30]
    blocks = Due(settings(checkpoint_every=10, device_iterations=4), ALONE, 0)
    assert [one for one in range(4, 33, 4) if blocks.at(one)] == [12, 20, 32]
    assert not any(Due(settings(checkpoint_every=0), ALONE, 0).at(one) for one in range(1, 30))


def test_the_interval_is_that_of_young_and_daly_and_no_shorter_than_writing_takes() -> None:
    assert best_interval_s(0.5, 1.0, 3600) == pytest.approx(60)
    assert best_interval_s(0.5, 90.0, 3600) == 90


def test_auto_measures_the_first_and_follows_what_it_cost() -> None:
    due = auto()
    assert next(one for one in range(100, 130) if due.at(one)) == 110
    line = due.saved(110, training_s=5.0, stood_still_s=0.5, durable_s=1.0)
    assert line == "checkpoints: every 120 updates (60 s); training stands still 0.5 s for one, a failure every 1 h"
    assert (due.at(229), due.at(230)) == (False, True)
    assert due.saved(230, training_s=65.0, stood_still_s=0.5, durable_s=1.0) == ""  # much the same: no news
    assert (due.at(349), due.at(350)) == (False, True)


def test_all_ranks_follow_the_first() -> None:
    due = auto(Second(RankPlace(1, 0, 2, torch.device("cpu"))))
    due.saved(110, training_s=5.0, stood_still_s=0.5, durable_s=1.0)
    assert (due.at(116), due.at(117)) == (False, True)
