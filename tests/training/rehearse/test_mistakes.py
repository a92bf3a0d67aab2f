"""Mistakes of scripts for several ranks that raise no error: a rehearsal names them, and none in a right script."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.local_runs import PYTHON, Here

pytestmark = pytest.mark.timeout(900)
SCRIPT = Path(__file__).parents[3] / "benchmarks" / "resume_scripts" / "ddp.py"
MISTAKES = (
    "init-rank",
    "same-samples",
    "order-per-rank",
    "weights-apart",
    "not-synchronised",
    "accumulation-not-divided",
    "all-save",
)


@pytest.mark.parametrize(
    "mistake", ["", "sampler-rank", *(pytest.param(mistake, marks=pytest.mark.full) for mistake in MISTAKES)]
)
def test_a_mistake_is_named(here: Here, needs: Callable[[str], Path], mistake: str) -> None:
    needs("slurm")
    here.write("ddp.py", SCRIPT.read_text())
    asked = ("--cluster", "slurm-gpu", "--no-gpus", "--instances", "4", "--hosts", "2", "--json")
    words = ("--", PYTHON, "ddp.py", "--accumulate", "2", "--fault", mistake)
    verdict = json.loads(here.run("rehearse", *asked, *words, code=1 if mistake == "init-rank" else 0).stdout)
    assert [one["code"] for one in verdict["findings"]] == [mistake] * bool(mistake)
