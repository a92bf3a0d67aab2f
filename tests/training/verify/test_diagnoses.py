"""What `trainjob verify` tells of tasks that are wrong in one way each, and of two that are right."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.verdicts import judge
from trainjob.verify.tasks.instances import InstancesVerdict


def codes(verdict: InstancesVerdict) -> list[str]:
    return [finding.code for finding in verdict.findings]


@pytest.mark.parametrize(
    ("task", "code"),
    {
        "Shuffled": "sample-order",
        "Scaled": "mean-against-sum",
        "Running": "batch-norm-not-synchronised",
        "Late": "unknown",
        "Padded": "padding",
        "OwnDropout": "dropout-stream",
        "Augmented": "sample-values",
        "Uneven": "uneven-batch",
        "Synchronised": "batch-norm-synchronised",
        "ByRank": "unknown",
    }.items(),
)
def test_the_mistake_of_a_wrong_task_is_reported(tmp_path: Path, task: str, code: str) -> None:
    assert codes(judge(tmp_path, task)) == [code]


def test_a_task_that_amplifies_rounding_shows_nothing_and_is_not_blamed(tmp_path: Path) -> None:
    verdict = judge(tmp_path, "Chaotic", accumulation=2, learning_rate=1.0)
    assert not verdict.equal
    assert verdict.inconclusive
    assert codes(verdict) == ["amplified-rounding"]
    assert len(verdict.runs) == 3  # the control among them


def test_parameter_averaging_is_shown_wrong(tmp_path: Path) -> None:
    assert codes(judge(tmp_path, "Right", engine="parameter-averaging")) == ["parameter-averaging"]


def test_float32_is_judged_by_the_first_gradients_alone(tmp_path: Path) -> None:
    verdict = judge(tmp_path, "Right", dtype="float32")
    assert verdict.equal
    assert "first update's gradients alone" in verdict.judged
