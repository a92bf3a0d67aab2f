"""--sum-order fixed: float32 weights that are the same to the last bit for any number of instances."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.runs_at_work import final_bytes, log, make_run, train, write_job
from trainjob.contract.paths import RunPaths

# Dropout and momentum, clipping by the whole gradient's norm: whatever sees a sum sees the same one.
JOB: dict[str, Any] = {
    "micro_batch": 4,
    "updates": 6,
    "sum_order": "fixed",
    "clip_norm": 0.5,
    "schedule": "constant",
}
MICRO_BATCHES = 12
# Each micro batch uses the parameter that its first sample chooses, and nothing uses the last one.
PICKY = """
import torch
from torch import nn
from torch.utils.data import TensorDataset


class Picky(nn.Module):
    def __init__(self):
        super().__init__()
        self.choices = nn.ParameterList([nn.Parameter(torch.full((1,), 0.3 * number)) for number in range(3)])

    def forward(self, inputs):
        return inputs * self.choices[int(10 * inputs[0]) % 2]


class Task:
    def build_model(self):
        return Picky()

    def open_data(self, place):
        inputs = torch.rand(480, generator=torch.Generator().manual_seed(0))
        return TensorDataset(inputs, inputs.sin())

    def loss(self, outputs, targets):
        return (outputs - targets).square().mean()
"""


def trained(folder: Path, instances: int, **changes: Any) -> RunPaths:
    """Return a run of `instances` that has ended; the global batch is the same for all."""
    job = {**JOB, "instances": instances, "replicas": instances, "accumulation": MICRO_BATCHES // instances, **changes}
    job.setdefault("engine", "single" if instances == 1 else "ddp")
    run = make_run(folder, **job)
    assert train(run, instances) == [0] * instances, log(run)
    return run


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> RunPaths:
    return trained(tmp_path_factory.mktemp("alone") / "run", 1)


@pytest.mark.parametrize("instances", [3, 4])
def test_weights_are_the_same_to_the_last_bit(tmp_path: Path, alone: RunPaths, instances: int) -> None:
    assert final_bytes(trained(tmp_path / "run", instances)) == final_bytes(alone)


def test_so_are_those_of_parameters_that_some_micro_batches_use_or_none(tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "task": "mine:Task",
        "entry": "mine:Task",
        "data": None,
        "samples": None,
        "learning_rate": 0.1,
        "weight_decay": 0.1,
        "allow_unused_parameters": True,
        "project": {"mine.py": PICKY},
    }
    one, three = (trained(tmp_path / str(number), number, **settings) for number in (1, 3))
    assert final_bytes(three) == final_bytes(one)


def test_without_it_they_are_not(tmp_path: Path, alone: RunPaths) -> None:
    """What the test above relies on: the order of a sum does show in these weights."""
    assert final_bytes(trained(tmp_path / "run", 3, sum_order="any")) != final_bytes(alone)


def test_a_run_resumed_with_another_number_of_instances_ends_with_the_same_bits(
    tmp_path: Path, alone: RunPaths
) -> None:
    stopped = trained(tmp_path / "run", 2, updates=3)
    job = {**JOB, "instances": 3, "replicas": 3, "accumulation": MICRO_BATCHES // 3, "engine": "ddp"}
    write_job(stopped, **job)
    assert train(stopped, 3, attempt=2) == [0] * 3, log(stopped)
    assert final_bytes(stopped) == final_bytes(alone)
