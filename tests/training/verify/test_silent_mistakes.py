"""Mistakes that raise no error are told of real ranks with the hook, and right scripts are left alone."""

from __future__ import annotations

import sys

import pytest

from tests.support import ROOT
from tests.support.programs import ran

# What the record of the hook itself decides; the rest is judged in tests/unit/verify.
SHOWN = ("evaluation-mode", "no-set-epoch", "rate-zero", "sum-of-losses", "norm", "frozen-norm", "augmented")


def told(*only: str) -> str:
    words = [word for name in only for word in ("--only", name)]
    return ran([sys.executable, "-m", "benchmarks.silent_mistakes", *words], folder=ROOT, timeout_s=500).stdout


def test_what_the_hook_sees_is_told() -> None:
    printed = told(*SHOWN)
    assert "4 mistakes: 3 told by rehearse, 1 more by verify; by none: []" in printed, printed
    assert "3 right scripts: notes of rehearse [], findings of verify [], inconclusive 2" in printed, printed


@pytest.mark.full
def test_each_mistake_is_told_and_no_right_script_is_accused() -> None:
    printed = told()
    assert "22 mistakes: 18 told by rehearse, 4 more by verify; by none: []" in printed, printed
    assert "30 right scripts: notes of rehearse [], findings of verify []" in printed, printed
