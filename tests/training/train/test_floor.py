"""The floor, Python 3.8 with torch 1.10, beside today's: each continues where the other stopped."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.runs_at_work import lines, log, make_run, tensors, train, train_here, updates
from trainjob.contract import exits


@pytest.mark.parametrize(("optimizer", "instances"), [("sgd", 1), ("adamw", 2), ("lamb", 1)])
def test_a_checkpoint_crosses_from_one_torch_to_another(
    tmp_path: Path, needs: Callable[[str], Path], optimizer: str, instances: int
) -> None:
    floor = str(needs("floor"))
    job: dict[str, Any] = {
        "precision": "64.64",
        "optimizer": optimizer,
        "learning_rate": 0.002,
        "updates": 12,
        "checkpoint_every": 4,
    }
    job["task_options"] = {"dropout": 0.0}
    whole = make_run(tmp_path / "whole", instances=1, accumulation=2, **job)
    assert train_here(whole) == 0
    crossing = make_run(tmp_path / "crossing", instances=instances, accumulation=2 // instances, **job)
    for attempt, python in enumerate((floor, None, floor), 1):
        codes = train(crossing, instances, attempt, python=python, TRAINJOB_MAX_UPDATES=4 * attempt)
        assert codes == [exits.DONE] * instances, log(crossing)
    assert updates(crossing)[0] == 12
    expected = tensors(whole)
    for name, value in tensors(crossing).items():
        assert float((value - expected[name]).abs().max()) < 1e-9, name
    assert lines(crossing, "evaluation")[-1]["samples"] == 360


def test_the_floor_stops_when_asked(tmp_path: Path, needs: Callable[[str], Path]) -> None:
    floor = str(needs("floor"))
    run = make_run(tmp_path / "run", instances=2, accumulation=2, epochs=2)
    run.stop.touch()
    assert train(run, 2, python=floor) == [exits.CHECKPOINTED] * 2, log(run)
    assert updates(run) == [int(run.requeue.read_text())]
