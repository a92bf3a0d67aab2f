"""Examples that need a scheduler, rehearsed as the documentation shows them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from docs.outputs import EXAMPLES

pytestmark = pytest.mark.timeout(400)


@pytest.fixture
def rehearse(needs: Callable[[str], Path], tmp_path: Path) -> Callable[..., dict[str, Any]]:
    needs("slurm")
    project = tmp_path / "project"
    shutil.copytree(EXAMPLES, project)
    program = Path(sys.executable).with_name("trainjob")

    def run(*flags: str) -> dict[str, Any]:
        words = [str(program), "rehearse", "--cluster", "slurm-gpu", "--no-gpus", "--keep", "--json", *flags]
        environ = {
            **os.environ,
            "XDG_DATA_HOME": str(tmp_path / "data"),
            "PATH": f"{program.parent}:{os.environ['PATH']}:/usr/sbin:/sbin",
        }
        ended = subprocess.run(words, cwd=project, env=environ, capture_output=True, text=True, check=False)
        assert ended.returncode == 0, ended.stdout + ended.stderr
        verdict: dict[str, Any] = json.loads(ended.stdout)
        return verdict

    return run


def test_a_preempted_script_continues_where_it_was_interrupted(rehearse: Callable[..., dict[str, Any]]) -> None:
    verdict = rehearse("--instances", "2", "--inject", "preempt", "--", "python", "preempted.py")
    assert verdict["attempts"] == 2
    first, second = Path(verdict["folder"], "logs", "rank-0000.log").read_text().split("attempt 2 begins at step ")
    assert first.split("stopped at step ")[1].split()[0] == second.split()[0] != "0"
    assert "stopped at step 60 of 60" in second


@pytest.mark.full
def test_every_element_of_the_sweep_trains(rehearse: Callable[..., dict[str, Any]]) -> None:
    verdict = rehearse("--job", "sweep_job.yaml", "--sweep", "rates.yaml")
    assert verdict["outcome"] == "COMPLETED: 3 array elements"
