"""The learning rate of every update: warm-up, then the schedule's shape."""

import math

import pytest
from runs_at_work import settings

from trainjob.train.schedules import Schedule

PEAK = 0.5


def rates(total, **asked):
    schedule = Schedule(settings(learning_rate=PEAK, **asked), total)
    return [schedule(update) for update in range(total)]


def test_a_warm_up_climbs_evenly_to_the_peak():
    assert rates(8, schedule="constant", warmup_updates=4) == pytest.approx([0.125, 0.25, 0.375] + [PEAK] * 5)


def test_a_cosine_falls_from_the_peak_towards_nothing():
    found = rates(10, schedule="cosine")
    assert found == pytest.approx([PEAK * (1 + math.cos(math.pi * update / 10)) / 2 for update in range(10)])
    assert found == sorted(found, reverse=True)


def test_a_cosine_begins_behind_the_warm_up():
    assert rates(12, schedule="cosine", warmup_updates=2)[2:] == pytest.approx(rates(10, schedule="cosine"))


def test_behind_the_end_nothing_is_learned():
    assert Schedule(settings(learning_rate=PEAK, schedule="cosine"), 10)(25) == pytest.approx(0.0)
