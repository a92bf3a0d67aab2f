"""Engine fsdp: parts of a model train as the whole model does, and continue each other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.own_tasks import own
from tests.support.runs_at_work import lines, log, make_run, tensors, train, train_here, write_job
from trainjob.contract.paths import RunPaths
from trainjob.lifecycle.export import export
from trainjob.records import checkpoints
from trainjob.train.recording import safetensors

MICRO_BATCHES = 12
# Dropout, clipping by the norm of the whole gradient, an optimizer that needs the norms of whole weights and has two
# tensors a parameter, and an average of the weights, which is evaluated.
JOB: dict[str, Any] = {
    "micro_batch": 2,
    "precision": "64.64",
    "weight_decay": 0.1,
    "average_decay": 0.9,
    "learning_rate": 0.001,
    "clip_norm": 0.5,
    "schedule": "constant",
}


def job(instances: int, engine: str, **changes: Any) -> dict[str, Any]:
    counts = {"instances": instances, "replicas": instances, "accumulation": MICRO_BATCHES // instances}
    return {**JOB, **counts, "engine": engine, **changes}


def assert_same(run: RunPaths, other: RunPaths) -> None:
    assert_equal(tensors(run), tensors(other))


def assert_equal(one: dict[str, torch.Tensor], two: dict[str, torch.Tensor]) -> None:
    assert one.keys() == two.keys()
    for name, tensor in one.items():
        torch.testing.assert_close(tensor, two[name], rtol=1e-9, atol=1e-12)


def average(run: RunPaths, folder: Path) -> dict[str, torch.Tensor]:
    """Return the average of the weights, joined as `export` joins it."""
    target = folder / f"{run.folder.name}-averaged.safetensors"
    export(run, target, print, averaged=True)
    return safetensors.load(target)


_CHAINS = {
    "sharded": (job(2, "fsdp", updates=3, recompute=True), job(1, "single", updates=6)),
    "groups": (job(4, "fsdp", updates=2, shard_group=2), job(1, "single", updates=4), job(3, "fsdp", updates=6)),
}


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("chain", "optimizer"), [("sharded", "lamb"), pytest.param("groups", "lars", marks=pytest.mark.full)]
)
def test_sharded_and_whole_runs_continue_each_other_and_end_as_one_instance(
    tmp_path: Path, chain: str, optimizer: str
) -> None:
    alone = make_run(tmp_path / "alone", **job(1, "single", updates=6, optimizer=optimizer))
    assert train_here(alone) == 0
    run = make_run(tmp_path / "run", **_CHAINS[chain][0])
    for attempt, settings in enumerate(_CHAINS[chain], 1):
        write_job(run, **{**settings, "optimizer": optimizer})
        instances = settings["instances"]
        codes = [train_here(run, attempt)] if instances == 1 else train(run, instances, attempt)
        assert codes == [0] * instances, log(run)
        parts = settings.get("shard_group", instances)
        newest = checkpoints.folders(run.checkpoints)[0]
        assert {path.name for path in newest.glob("model*")} == set(checkpoints.part_names(checkpoints.MODEL, parts))
        export(run, tmp_path / "joined.safetensors", print)
        joined = safetensors.load(tmp_path / "joined.safetensors")
        assert all(torch.equal(tensor, joined[name]) for name, tensor in tensors(run).items())
    assert_same(run, alone)
    assert_equal(average(run, tmp_path), average(alone, tmp_path))
    held_out = [lines(one, "evaluation")[-1]["loss"] for one in (run, alone)]
    assert held_out[0] == pytest.approx(held_out[1], rel=1e-9)


ROUTED = """
import torch
from torch import nn

class Routed(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(2))

    def forward(self, inputs):
        # Each micro batch has one sample, which decides which layer it takes.
        return self.layers[int(inputs[0, 0])](inputs)

class Task:
    shard_units = "0"

    def build_model(self):
        return nn.Sequential(Routed(), nn.ReLU(), nn.Linear(4, 2))

    def open_data(self, place):
        drawn = torch.randn(16, 4, generator=torch.Generator().manual_seed(1))
        drawn[:, 0] = torch.arange(16) % 2
        return torch.utils.data.TensorDataset(drawn, torch.arange(16) % 2), None

    def loss(self, outputs, targets):
        return nn.functional.cross_entropy(outputs, targets)
"""


def test_instances_may_use_other_parameters(tmp_path: Path) -> None:
    changes: dict[str, Any] = {
        "micro_batch": 1,
        "updates": 6,
        "optimizer": "adamw",
        "weight_decay": 0.1,
        "precision": "64.64",
        "allow_unused_parameters": True,
    }
    alone = own(tmp_path / "alone", ROUTED, engine="single", accumulation=2, reduction="sum", **changes)
    assert train_here(alone) == 0, log(alone)
    run = own(tmp_path / "run", ROUTED, engine="fsdp", instances=2, replicas=2, reduction="sum", **changes)
    assert train(run, 2) == [0, 0], log(run)
    assert_same(run, alone)


@pytest.mark.full
@pytest.mark.parametrize("precision", ["bf16", "16.16", "16.32"])
def test_sixteen_bits_train_and_evaluate(tmp_path: Path, precision: str) -> None:
    run = make_run(tmp_path / "run", instances=2, engine="fsdp", precision=precision, updates=20, clip_norm=1.0)
    assert train(run, 2) == [0, 0], log(run)
    assert "held-out loss" in log(run)
