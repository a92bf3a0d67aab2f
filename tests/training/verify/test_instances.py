"""`trainjob verify` on healthy tasks, on one that is wrong, and what it refuses; test_diagnoses.py has the others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.local_runs import Here
from tests.support.verdicts import runs_left, verify, verify_task


def codes(verdict: Any) -> list[Any]:
    return [finding["code"] for finding in verdict["findings"]]


@pytest.mark.parametrize(
    ("engine", "instances"),
    [
        ("naive", 3),
        *(pytest.param(*pair, marks=pytest.mark.full) for pair in (("fsdp", 3), ("ddp", 2), ("naive", 4), ("ddp", 4))),
    ],
)
def test_digits_cnn_with_dropout_trains_on_instances_as_on_one(here: Here, engine: str, instances: int) -> None:
    asked = ("--engine", engine, "--instances", str(instances), "--updates", "2", "--micro-batch", "4")
    verdict = verify(here, "--task", "digits-cnn", *asked)
    assert verdict["equal"]
    assert [one["update"] for one in verdict["updates"]] == [1, 2]
    assert verdict["instances"] == instances
    assert verdict["engine"] == engine


_FASTER = ("--memory-format", "channels-last", "--optimizer-implementation", "foreach")
_COMPILED = ("--compile", *_FASTER)


@pytest.mark.timeout(660)
@pytest.mark.parametrize("flags", [_FASTER, pytest.param(_COMPILED, marks=pytest.mark.full)], ids=["eager", "compiled"])
def test_what_makes_steps_faster_leaves_the_results_of_one_instance_without_it(
    here: Here, needs: Callable[[str], Path], flags: tuple[str, ...]
) -> None:
    needs("g++")  # with which torch compiles the model
    verdict = verify(here, *flags, "--updates", "2", "--micro-batch", "4", limit_s=600)
    assert verdict["equal"]
    assert [name for name in verdict["faster"] if name != "compile"] == ["memory_format", "optimizer_implementation"]
    assert ("compile" in verdict["faster"]) == (flags == _COMPILED)


_COMPILED_OTHERWISE = """
import torch
from torch import nn
from trainjob.train.tasks.digits_cnn import DigitsCnn


class Doubled(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, images):
        return self.model(images) * (2 if torch.compiler.is_compiling() else 1)


class Task(DigitsCnn):
    def build_model(self):
        return Doubled(super().build_model())
"""


@pytest.mark.full
@pytest.mark.timeout(660)
def test_a_setting_that_changes_results_is_named(here: Here, needs: Callable[[str], Path]) -> None:
    needs("g++")
    here.write("mine.py", _COMPILED_OTHERWISE)
    verdict = verify(here, "--task", "mine:Task", "--data", "digits", *_COMPILED, "--updates", "2", code=1, limit_s=600)
    (finding,) = verdict["findings"]
    assert finding["code"] == "faster-steps"
    assert finding["text"] == "one instance with --compile trains otherwise than without it"


_RESNET = ("--task", "cifar10-resnet50", "--data", "synthetic", "--updates", "2")


@pytest.mark.full
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("instances", [2, 4])
@pytest.mark.parametrize("engine", ["ddp", "naive", "horovod"])
def test_a_resnet_trains_on_instances_as_on_one(
    here: Here, needs: Callable[[str], Path], engine: str, instances: int
) -> None:
    if engine == "horovod":
        here.cluster("local", f"python: {needs('horovod')}\n")
    asked = ("--engine", engine, "--instances", str(instances), "--micro-batch", "8")
    assert verify(here, *_RESNET, *asked, limit_s=1100)["equal"]


@pytest.mark.full
@pytest.mark.timeout(1200)
def test_parameter_averaging_of_a_resnet_is_shown_wrong(here: Here) -> None:
    asked = ("--engine", "parameter-averaging", "--updates", "4", "--micro-batch", "2")
    assert codes(verify(here, *_RESNET[:4], *asked, code=1, limit_s=1100)) == ["parameter-averaging"]


@pytest.mark.full
@pytest.mark.timeout(1200)
def test_a_net_that_amplifies_rounding_is_reported_as_not_equal(here: Here) -> None:
    """Two samples of 32 × 32 leave two values to normalise over in the last blocks."""
    verdict = verify(here, *_RESNET, "--instances", "4", "--micro-batch", "2", code=1, limit_s=1100)
    assert codes(verdict) == ["amplified-rounding"]
    assert verdict["inconclusive"]


def test_batch_norm_accumulation_and_a_sum_are_equal_with_buffers_apart_and_the_runs_removed(here: Here) -> None:
    asked = ("--micro-batch", "2", "--accumulation", "2", "--reduction", "sum")
    verdict = verify_task(here, "Right", *asked)
    assert verdict["equal"]
    assert all(one["buffers"] > 0.01 and one["gradients"] < 1e-12 for one in verdict["updates"])
    assert not verdict["kept"]
    assert runs_left(here) == []


def test_the_mistake_of_a_wrong_task_is_reported_and_its_runs_stay(here: Here) -> None:
    verdict = verify_task(here, "Scaled", code=1)
    assert codes(verdict) == ["mean-against-sum"]
    assert verdict["kept"]
    assert sorted(verdict["runs"]) == runs_left(here)


def test_a_failing_experiment_shows_the_end_of_the_failing_rank_and_stays(here: Here) -> None:
    reported = verify_task(here, "Failing", code=1)
    assert "RuntimeError: the loss is out of stock" in reported["error"]
    (left,) = runs_left(here)
    assert f"trainjob logs {left}" in reported["error"]


def test_a_cluster_elsewhere_is_refused(here: Here) -> None:
    here.write("clusters/far.yaml", "kind: slurm\nnodes: {count: 2, cpus: 4}\n")
    assert "of kind slurm" in verify(here, "--cluster", "far", code=1)["error"]


def test_another_type_is_a_usage_error(here: Here) -> None:
    assert "is not one of 'float64', 'float32'" in here.run("verify", "--dtype", "float16", code=2).stderr
