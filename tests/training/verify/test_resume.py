"""`trainjob verify --resume`: stopped by signals and by kill -9, and equal all the same."""

from __future__ import annotations

import pytest

from tests.support.local_runs import Here
from tests.support.verdicts import verify, verify_task


def test_an_interrupted_run_ends_with_the_same_bits_and_samples(here: Here) -> None:
    verdict = verify_task(here, "Right", "--resume", "--updates", "200", "--interruptions", "1")
    assert verdict["bitwise"]
    assert verdict["equal"]
    assert verdict["same_samples"]
    assert [one["way"] for one in verdict["interruptions"]] == ["time-limit"]


def test_another_number_of_instances_ends_within_the_tolerance(here: Here) -> None:
    batch = ("--global-batch", "8")
    asked = ("--resume", "--updates", "100", "--by", "kill", "--interruptions", "1", "--other-instances", "1", *batch)
    verdict = verify_task(here, "Right", *asked)
    assert verdict["equal"]
    assert not verdict["bitwise"]
    assert [one["instances"] for one in verdict["interruptions"]] == [1]


def test_a_task_that_counts_outside_of_its_model_is_not_equal(here: Here) -> None:
    asked = ("--resume", "--instances", "1", "--updates", "200", "--by", "kill", "--interruptions", "1")
    verdict = verify_task(here, "Counting", *asked, code=1)
    assert not verdict["equal"]
    assert verdict["same_samples"]


_LONG = pytest.mark.timeout(1800)


# tests/training/train/test_resume.py kills ranks at random moments; the tests above interrupt by kill as well.
@pytest.mark.full
@pytest.mark.parametrize("kills", [1, pytest.param(50, marks=_LONG)])
def test_kill_9_at_random_moments_loses_nothing(here: Here, kills: int) -> None:
    asked = ("--resume", "--instances", "1", "--by", "kill", "--interruptions", str(kills))
    verdict = verify_task(here, "Unhurried", *asked, "--updates", str(20 * kills), limit_s=1700 if kills > 1 else 300)
    assert verdict["equal"]
    assert verdict["same_samples"]
    assert [one["way"] for one in verdict["interruptions"]] == ["kill"] * kills


def test_float32_cannot_show_another_number_of_instances(here: Here) -> None:
    asked = ("--resume", "--dtype", "float32", "--other-instances", "1")
    assert "leave --dtype out" in verify(here, *asked, code=1)["error"]
