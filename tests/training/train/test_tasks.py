"""A user's own task: found, built with its options, refused by name where it can't train, blamed where it fails."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.own_tasks import TASK, own
from tests.support.runs_at_work import final_bytes, lines, log, train, train_here
from trainjob.contract import exits


def test_a_map_style_dataset_trains_with_the_same_bits_in_workers_and_after_an_interruption(tmp_path: Path) -> None:
    here, workers, cut = (
        own(tmp_path / "here"),
        own(tmp_path / "workers", workers=2),
        own(tmp_path / "cut"),
    )
    assert train_here(here) == 0
    assert train(workers) == [0], log(workers)
    cut.stop.touch()
    assert train_here(cut) == exits.CHECKPOINTED
    cut.stop.unlink()
    assert train_here(cut, attempt=2) == 0
    assert final_bytes(here) == final_bytes(workers) == final_bytes(cut)
    evaluated = lines(here, "evaluation")
    assert evaluated[-1]["samples"] == 64
    assert evaluated[-1]["accuracy"] is None


def test_instances_with_a_dataset_of_the_users_train_as_one(tmp_path: Path) -> None:
    job: dict[str, Any] = {"precision": "64.64", "micro_batch": 4}
    one, two = own(tmp_path / "one", accumulation=2, **job), own(tmp_path / "two", instances=2, workers=1, **job)
    assert train_here(one) == 0
    assert train(two, 2) == [0, 0], log(two)
    assert lines(two, "train")[-1]["loss"] == pytest.approx(lines(one, "train")[-1]["loss"], rel=1e-12)
    assert lines(two, "evaluation")[-1]["loss"] == pytest.approx(lines(one, "evaluation")[-1]["loss"], rel=1e-9)


UNUSED = TASK.replace(
    "return nn.Sequential(nn.Linear(4, self.width)",
    "class Partly(nn.Sequential):\n"
    "            def __init__(self, *layers):\n"
    "                super().__init__(*layers)\n"
    "                self.spare = nn.Linear(2, 2)\n"
    "            def forward(self, inputs):\n"
    "                for layer in list(self)[:3]:\n"
    "                    inputs = layer(inputs)\n"
    "                return inputs\n"
    "        return Partly(nn.Linear(4, self.width)",
)


def test_parameters_without_a_gradient_are_refused_by_name(tmp_path: Path) -> None:
    run = own(tmp_path / "run", UNUSED, instances=2)
    assert train(run, 2) == [exits.USER_OR_CLUSTER_CAN_FIX] * 2
    for rank in (0, 1):
        output = log(run, rank)
        assert "every parameter must get a gradient, and 2 get none: spare.weight, spare.bias." in output
        assert "--allow-unused-parameters" in output
        assert "Traceback" not in output


@pytest.mark.parametrize("engine", ["ddp", "naive"])
def test_parameters_without_a_gradient_may_be_allowed(tmp_path: Path, engine: str) -> None:
    run = own(tmp_path / "run", UNUSED, instances=2, engine=engine, allow_unused_parameters=True)
    assert train(run, 2) == [0, 0], log(run)
