"""Ordinary histories that a private Slurm and the simulated world must bring to the same end."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.programs import ran

_ROOT = Path(__file__).parents[3]


@pytest.mark.full
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", [7, 701200, 706600, 716500])
def test_a_real_slurm_agrees_with_the_simulated_world(needs: Callable[[str], Path], seed: int) -> None:
    needs("slurm")
    # A process of its own: the history puts its own time, processes and files in the place of Python's.
    command = [sys.executable, "-m", "simulation.replay", "--first", str(seed), "--seeds", "1"]
    ended = ran(command, folder=_ROOT, code=0)
    assert "1 of 1 agree" in ended.stdout
