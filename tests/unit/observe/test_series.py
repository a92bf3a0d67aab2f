"""Curves are read once, in bounded memory, and keep every extreme."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tests.support.curves import series
from trainjob.observe.report.series import MOST_POINTS, MOST_STRETCHES, Columns


def line(update: int, loss: Any = 1.0, **more: Any) -> dict[str, Any]:
    seconds = {"data": 1.0, "compute": 2.0, "communication": 1.0, "checkpoint": 0.0}
    common = {"kind": "train", "attempt": 1, "samples_per_s": 100.0, "seconds": seconds}
    return {**common, "update": update, "loss": loss, **more}


def test_few_points_stay_as_they_are() -> None:
    found = series([line(10, 3.0), line(20, 2.0), line(30, 1.0)])
    assert found.training.curve("loss") == [(10, 3.0), (20, 2.0), (30, 1.0)]


def test_many_points_are_thinned_and_every_extreme_stays() -> None:
    losses = [math.sin(update / 50) for update in range(100_000)]
    losses[31_415], losses[92_653] = 9.0, -9.0
    points = series(line(update, loss) for update, loss in enumerate(losses)).training.curve("loss")
    assert len(points) <= MOST_POINTS
    assert {(31_415, 9.0), (92_653, -9.0)} <= set(points)
    assert points == sorted(points)


def test_a_later_attempt_replaces_the_updates_that_it_trains_again() -> None:
    lines = [line(10), line(20, 5.0), line(30, 6.0), line(20, 4.0, attempt=2), line(40, 3.0, attempt=2)]
    found = series(lines)
    assert found.training.curve("loss") == [(10, 1.0), (20, 4.0), (40, 3.0)]
    assert (found.attempts, found.repeated_updates) == ({1: 10, 2: 20}, 10)


@pytest.mark.parametrize("loss", [None, "low", True, math.nan, math.inf, [1.0], 10**400])
def test_what_is_no_figure_is_a_gap(loss: Any) -> None:
    found = series([line(10, loss), line(20, 2.0)])
    assert found.training.curve("loss") == [(20, 2.0)]


def test_shares_add_up_to_all_of_the_time() -> None:
    found = series(line(update) for update in range(1000))
    shares = list(found.training.shares(("data", "compute", "communication", "checkpoint")))
    assert len(shares) <= MOST_STRETCHES
    assert shares[-1] == (999, [25.0, 50.0, 25.0, 0.0])


def test_the_speed_is_a_median_with_its_interval() -> None:
    found = series(line(update, samples_per_s=float(update)) for update in range(1, 102))
    assert found.speed() == (6.0, 51.0, 96.0)
    assert series([line(1)]).speed() is None


def test_columns_without_a_line_are_empty() -> None:
    assert Columns("loss").curve("loss") == []
    assert list(Columns("data").shares(["data"])) == []
