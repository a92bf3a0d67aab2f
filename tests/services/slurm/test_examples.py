"""Examples that need a scheduler, rehearsed as the documentation shows them, and a script that is no example."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from docs.outputs import EXAMPLES
from tests.support.programs import ran

pytestmark = pytest.mark.timeout(400)


@pytest.fixture
def rehearse(needs: Callable[[str], Path], tmp_path: Path) -> Callable[..., dict[str, Any]]:
    needs("slurm")
    project = tmp_path / "project"
    shutil.copytree(EXAMPLES, project)
    program = Path(sys.executable).with_name("trainjob")

    def run(*flags: str, code: int = 0) -> dict[str, Any]:
        words = [str(program), "rehearse", "--cluster", "slurm-gpu", "--no-gpus", "--keep", "--json", *flags]
        environ = {
            **os.environ,
            "XDG_DATA_HOME": str(tmp_path / "data"),
            "PATH": f"{program.parent}:{os.environ['PATH']}:/usr/sbin:/sbin",
        }
        ended = ran(words, folder=project, environ=environ, code=code)
        verdict: dict[str, Any] = json.loads(ended.stdout)
        return verdict

    return run


def test_a_preempted_script_continues_where_it_was_interrupted(rehearse: Callable[..., dict[str, Any]]) -> None:
    verdict = rehearse("--instances", "2", "--inject", "preempt", "--", "python", "preempted.py")
    assert verdict["attempts"] == 2
    first, second = Path(verdict["folder"], "logs", "rank-0000.log").read_text().split("attempt 2 begins at step ")
    assert first.split("stopped at step ")[1].split()[0] == second.split()[0] != "0"
    assert "stopped at step 60 of 60" in second


_DEAF = """\
import time

time.sleep(1)
for step in range(1, 200):
    time.sleep(0.1)
    print(f"step {step}/200 loss {1 / step:.3f}", flush=True)
"""


def test_a_script_is_preempted_once_it_trains_and_a_note_says_that_it_does_not_catch_the_signal(
    rehearse: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    (tmp_path / "project/deaf.py").write_text(_DEAF)
    verdict = rehearse("--inject", "preempt", "--", "python", "deaf.py", code=1)
    assert re.match("TERM ended (rank [0-3], which does|the ranks, which do) not catch it", verdict["outcome"])
    assert "step 1/200" in Path(verdict["folder"], "logs", "rank-0000.log").read_text()


@pytest.mark.full
def test_every_element_of_the_sweep_trains(rehearse: Callable[..., dict[str, Any]]) -> None:
    verdict = rehearse("--job", "sweep_job.yaml", "--sweep", "rates.yaml")
    assert verdict["outcome"] == "COMPLETED: 3 array elements"
