"""The task that the documentation shows is the task that runs."""

from __future__ import annotations

import textwrap
from pathlib import Path

from tests.support.runs_at_work import lines, log, make_run, train
from trainjob.train.tasks import base

SHOWN = 30  # lines: what one reads before writing a task of one's own


def test_the_documented_task_trains(tmp_path: Path) -> None:
    code = textwrap.dedent(base.__doc__[base.__doc__.index("    import torch") :])
    assert len([line for line in code.splitlines() if line.strip()]) <= SHOWN
    run = make_run(
        tmp_path / "run",
        {"parity.py": code},
        task="parity:Parity",
        entry="parity:Parity",
        task_options={"bits": 6, "width": 32},
        data=None,
        samples=None,
        micro_batch=8,
        optimizer="adamw",
        learning_rate=0.01,
        schedule="constant",
        epochs=120,
    )
    assert train(run) == [0], log(run)
    assert lines(run, "evaluation")[-1]["accuracy"] > 0.9, log(run)
