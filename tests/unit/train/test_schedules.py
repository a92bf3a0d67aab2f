"""The learning rate of every update: warm-up, then the schedule's shape."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from tests.support.runs_at_work import settings
from trainjob.train.schedule import Schedule

PEAK = 0.5


def rates(total: Any, **asked: Any) -> list[Any]:
    schedule = Schedule(settings(learning_rate=PEAK, **asked), total, updates_per_epoch=4)
    return [schedule(update) for update in range(total)]


def test_a_warm_up_climbs_evenly_to_the_peak() -> None:
    assert rates(8, schedule="constant", warmup_updates=4) == pytest.approx([0.125, 0.25, 0.375] + [PEAK] * 5)


def test_a_cosine_falls_from_the_peak_towards_nothing() -> None:
    found = rates(10, schedule="cosine")
    assert found == pytest.approx([PEAK * (1 + math.cos(math.pi * update / 10)) / 2 for update in range(10)])
    assert found == sorted(found, reverse=True)


def test_a_cosine_begins_behind_the_warm_up() -> None:
    assert rates(12, schedule="cosine", warmup_updates=2)[2:] == pytest.approx(rates(10, schedule="cosine"))


def test_behind_the_end_nothing_is_learned() -> None:
    assert Schedule(settings(learning_rate=PEAK, schedule="cosine"), 10, updates_per_epoch=10)(25) == pytest.approx(0.0)


def test_a_linear_schedule_ends_at_its_share_of_the_peak() -> None:
    found = rates(10, schedule="linear", schedule_options={"end": 0.2})
    assert found == pytest.approx([PEAK * (1 - 0.08 * update) for update in range(10)])


def test_steps_follow_epochs_and_the_warm_up_does_not_move_them() -> None:
    job: dict[str, Any] = {"schedule": "step", "schedule_options": {"every_epochs": 1.5, "factor": 0.1}}
    assert rates(14, **job) == pytest.approx([PEAK] * 6 + [PEAK * 0.1] * 6 + [PEAK * 0.01] * 2)
    assert rates(14, warmup_updates=3, **job)[3:] == pytest.approx(rates(14, **job)[3:])


def test_warm_up_stable_decay() -> None:
    found = rates(12, schedule="warmup-stable-decay", warmup_updates=2, schedule_options={"decay": 0.4, "end": 0.5})
    assert found == pytest.approx([PEAK / 2] + [PEAK] * 8 + [PEAK * share for share in (0.875, 0.75, 0.625)])


@pytest.mark.parametrize("total", [2, 7, 10, 100])
def test_one_cycle_is_that_of_torch(total: int) -> None:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=PEAK)
    cycle = torch.optim.lr_scheduler.OneCycleLR(optimizer, PEAK, total_steps=total, cycle_momentum=False)
    expected = []
    for _ in range(total):
        expected.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        if len(expected) < total:
            cycle.step()
    assert rates(total, schedule="one-cycle") == pytest.approx(expected)
