"""The ipu engine beside the single engine, on the stand-ins: N instances × replicas train as one."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.ipu_runs import furthest_apart, instances_environment, run_alone, run_ipus
from tests.support.runs_at_work import finish, lines, log, make_run, start, tensors, train, updates, wait_for
from trainjob.contract import exits

# Five interpreters that import torch, on a machine that may have other work: a healthy test takes long.
pytestmark = pytest.mark.timeout(400)

# Weights come to the host in float32, whatever the stand-in computes in: 2⁻²⁴ of a weight, and a little.
SAME = 2e-7
# float32 throughout: 8 updates at this learning rate stay together; a real mistake is above 1e-3.
CLOSE = 1e-5

# No dropout: an IPU draws from its own generator. A constant rate: one block has one rate.
TRAINING: dict[str, Any] = {"task_options": {"dropout": 0.0}, "schedule": "constant", "updates": 4}


# Instances, replicas, accumulation, device iterations, reduction: all of them by make test-full, these always.
ALWAYS = [(1, 1, 1, 1, "mean"), (1, 4, 2, 2, "sum"), (4, 8, 2, 2, "mean"), (4, 4, 1, 1, "sum")]
EVERY = [
    (*where, *batch, reduction)
    for where in [(1, 1), (1, 4), (4, 4), (4, 8)]
    for batch in [(1, 1), (1, 2), (2, 1), (2, 2)]
    for reduction in ["mean", "sum"]
]
CASES = [pytest.param(*case, marks=[] if case in ALWAYS else [pytest.mark.full]) for case in EVERY]


@pytest.mark.parametrize(("instances", "replicas", "accumulation", "iterations", "reduction"), CASES)
def test_instances_and_replicas_train_as_one(
    tmp_path: Path, instances: Any, replicas: Any, accumulation: Any, iterations: Any, reduction: Any
) -> None:
    rate = 0.01 if reduction == "mean" else 0.01 / (accumulation * replicas)
    job: dict[str, Any] = {**TRAINING, "reduction": reduction, "learning_rate": rate, "accumulation": accumulation}
    ipus = run_ipus(tmp_path / "ipus", instances, replicas, exact=True, device_iterations=iterations, **job)
    alone = run_alone(tmp_path / "alone", replicas, **job)
    assert furthest_apart(ipus, alone) < SAME
    places = f"{replicas} replica{'s' * (replicas > 1)}, {instances} instance{'s' * (instances > 1)}"
    assert f", engine ipu on {places}, from the beginning to update 4" in log(ipus)
    assert updates(ipus)[0] == updates(alone)[0] == 4
    seen, expected = lines(ipus, "evaluation")[-1], lines(alone, "evaluation")[-1]
    assert seen["samples"] == 360
    assert seen["loss"] == pytest.approx(expected["loss"], abs=1e-5)
    assert seen["accuracy"] == pytest.approx(expected["accuracy"], abs=1e-6)


def test_the_loss_is_the_mean_of_every_micro_batch(tmp_path: Path) -> None:
    """Issue: output mode All, so that it compares with the other engines', update by update."""
    job: dict[str, Any] = {**TRAINING, "log_every": 1, "accumulation": 2}
    ipus = run_ipus(tmp_path / "ipus", 1, 2, exact=True, device_iterations=2, **job)
    alone = run_alone(tmp_path / "alone", 2, **job)
    mine = [line["loss"] for line in lines(alone, "train")]
    means_of_blocks = [(mine[0] + mine[1]) / 2, (mine[2] + mine[3]) / 2]
    assert [line["loss"] for line in lines(ipus, "train")] == pytest.approx(means_of_blocks, abs=1e-6)


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_both_optimizers_clipped(tmp_path: Path, optimizer: str) -> None:
    job: dict[str, Any] = {
        **TRAINING,
        "optimizer": optimizer,
        "learning_rate": 0.002,
        "accumulation": 2,
        "clip_norm": 0.5,
    }
    # Adam divides small gradients by their own size, and so makes the rounding of float32 inputs as large as a step.
    exact: dict[str, Any] = {"exact": True, "eight_bit_io": True} if optimizer == "adamw" else {}
    ipus = run_ipus(tmp_path / "ipus", 2, 4, **exact, **job)
    assert furthest_apart(ipus, run_alone(tmp_path / "alone", 4, **job)) < (SAME if optimizer == "adamw" else CLOSE)


def test_bytes_cross_to_the_device_and_are_normalised_there(tmp_path: Path) -> None:
    """9.3: with the 1/255, so that eight-bit I/O trains as the float path does."""
    ipus = run_ipus(tmp_path / "ipus", 1, 2, exact=True, eight_bit_io=True, **TRAINING)
    assert furthest_apart(ipus, run_alone(tmp_path / "alone", 2, **TRAINING)) < SAME


@pytest.mark.parametrize(
    "job",
    [
        {"optimizer": "lamb", "optimizer_options": {"beta2": 0.95}, "weight_decay": 0.01},
        {"optimizer": "sgd", "momentum": 0.8, "weight_decay": 0.01},
    ],
)
def test_optimizers_and_their_options_are_those_of_one_process(tmp_path: Path, job: dict[str, Any]) -> None:
    ipus = run_ipus(tmp_path / "ipus", 1, 2, exact=True, **TRAINING, **job)
    assert furthest_apart(ipus, run_alone(tmp_path / "alone", 2, **TRAINING, **job)) < SAME


@pytest.mark.parametrize(
    ("precision", "eight_bit_io", "optimizer"),
    [("16.16", False, "adamw"), ("16.16", True, "sgd"), ("16.32", False, "sgd"), ("16.32", True, "adamw")],
)
def test_sixteen_bits(tmp_path: Path, precision: str, eight_bit_io: bool, optimizer: str) -> None:
    job: dict[str, Any] = {**TRAINING, "optimizer": optimizer, "learning_rate": 0.002, "accumulation": 2}
    ipus = run_ipus(tmp_path / "ipus", 1, 2, precision=precision, eight_bit_io=eight_bit_io, **job)
    apart = furthest_apart(ipus, run_alone(tmp_path / "alone", 2, **job))
    assert 1e-9 < apart < 3e-2
    kind = torch.float16 if precision == "16.16" else torch.float32
    assert {tensor.dtype for tensor in tensors(ipus).values()} == {kind}


def test_evaluation_drops_the_padding_and_keeps_instances_together(tmp_path: Path) -> None:
    """360 held-out samples: a part of 120 on each of 3 instances, in calls of 8 × 4, the last filled up."""
    ipus = run_ipus(tmp_path / "ipus", 3, 6, micro_batch=16, **{**TRAINING, "updates": 1})
    assert lines(ipus, "evaluation")[-1]["samples"] == 360


OWN = """
import torch
from torch import nn
from torch.utils.data import Dataset

class Noisy(Dataset):
    def __len__(self):
        return 96
    def __getitem__(self, index):
        return torch.randn(4) + index, torch.tensor(index % 3)

class Own:
    def build_model(self):
        return nn.Linear(4, 3)
    def open_data(self, place):
        return Noisy(), None
    def loss(self, outputs, targets):
        return nn.functional.cross_entropy(outputs, targets)
"""


@pytest.mark.parametrize("workers", [0, 2])
def test_a_data_set_of_ones_own_comes_by_the_asynchronous_loader_in_our_order(tmp_path: Path, workers: int) -> None:
    job: dict[str, Any] = {
        "task": "own:Own",
        "project": {"own.py": OWN},
        "updates": 12,
        "schedule": "constant",
        "accumulation": 2,
    }
    job["learning_rate"] = 0.001
    ipus = run_ipus(tmp_path / "ipus", 2, 2, exact=True, workers=workers, device_iterations=3, **job)
    assert furthest_apart(ipus, run_alone(tmp_path / "alone", 2, **job)) < SAME


def test_updates_end_with_a_block(tmp_path: Path) -> None:
    ipus = run_ipus(tmp_path / "ipus", 1, 1, device_iterations=4, **{**TRAINING, "updates": 6})
    assert updates(ipus)[0] == 8


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_a_stopped_run_continues_with_its_momentum(tmp_path: Path, optimizer: str) -> None:
    """The user guide's "Reading and writing optimizer state": the checkpoint holds it."""
    job: dict[str, Any] = {**TRAINING, "optimizer": optimizer, "checkpoint_every": 2}
    whole = run_ipus(tmp_path / "whole", 2, 2, exact=True, **job)
    stopped = run_ipus(tmp_path / "stopped", 2, 2, exact=True, variables={"TRAINJOB_MAX_UPDATES": 2}, **job)
    run_ipus(stopped.folder, 2, 2, exact=True, attempt=2, run=stopped)
    assert "restarts from zero" not in log(stopped)
    assert furthest_apart(stopped, whole) < SAME


def test_all_instances_stop_at_the_same_block(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", instances=2, replicas=2, engine="ipu", device_iterations=2, epochs=400)
    from tests.support.ipu_instances import everywhere

    environ: dict[str, Any] = {**everywhere(), "TRAINJOB_RANK_DEVICE": "ipu"}
    started = start(run, 2, by_rank=instances_environment(2, 2), **environ)
    wait_for(lambda: lines(run, "train"), started)
    run.stop.touch()
    assert finish(started) == [exits.CHECKPOINTED] * 2, log(run)
    assert updates(run)[0] % 2 == 0


def test_compiling_ahead_needs_no_other_instance_and_no_device(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", instances=4, replicas=8, engine="ipu", device_iterations=2, **TRAINING)
    from tests.support.ipu_instances import environment, everywhere

    cache = tmp_path / "cache"
    environ: dict[str, Any] = {
        **everywhere(),
        **environment(0, 4, 8),
        "TRAINJOB_RANK_DEVICE": "ipu",
        "TRAINJOB_COMPILE_ONLY": "1",
    }
    assert train(run, 1, POPTORCH_CACHE_DIR=cache, **environ) == [0], log(run)
    # The training, the evaluation, and the program that tests the layout.
    assert len(list(cache.glob("*.standin"))) == 3
    assert not updates(run)


SPLIT = """
from trainjob.train.tasks.digits_cnn import DigitsCnn

class Split(DigitsCnn):
    split_points = ("5",)
"""


def test_a_model_is_split_where_its_task_says(tmp_path: Path) -> None:
    """4.8: two IPUs a replica, three stages, and accumulation of at least three."""
    job: dict[str, Any] = {
        **TRAINING,
        "task": "split:Split",
        "project": {"split.py": SPLIT},
        "data": "digits",
        "accumulation": 3,
    }
    ipus = run_ipus(tmp_path / "ipus", 2, 2, exact=True, ipus_per_replica=2, **job)
    assert furthest_apart(ipus, run_alone(tmp_path / "alone", 2, **job)) < SAME
    short: dict[str, Any] = {**job, "accumulation": 2}
    refused = run_ipus(tmp_path / "short", 2, 2, code=1, ipus_per_replica=2, **short)
    assert "must be greater than or equal to the number of pipeline stages (3)" in log(refused)


def test_a_model_that_is_not_split_is_refused_on_two_ipus(tmp_path: Path) -> None:
    refused = run_ipus(tmp_path / "ipus", 2, 2, code=1, ipus_per_replica=2, **{**TRAINING, "accumulation": 3})
    assert "a model on 2 IPUs needs 1 split points, and the task's split_points are none" in log(refused)


def test_instances_are_poprun_s_to_start(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", instances=2, replicas=2, engine="ipu", **TRAINING)
    from tests.support.ipu_instances import everywhere

    assert train(run, 2, **dict[str, Any](everywhere())) == [1, 1]
    assert "were started without poprun" in log(run)


def test_without_poptorch_the_engine_says_what_is_missing(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", engine="ipu", **TRAINING)
    assert train(run) == [1]
    assert "engine ipu needs poptorch" in log(run)


def test_other_replicas_than_planned_are_refused(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", instances=2, replicas=4, engine="ipu", **TRAINING)
    from tests.support.ipu_instances import everywhere

    assert train(run, 2, by_rank=instances_environment(2, 2), **dict[str, Any](everywhere())) == [1, 1]
    assert "plans 4 replicas and poprun was given 2" in log(run)


OTHER_LAYOUT = """
import poptorch.layout
from poptorch.layout import Shape
poptorch.layout.Shape.place_of = lambda self, iteration, source, number: (
    number * self.iterations + iteration) * self.inputs + source
"""


def test_another_layout_is_found_out_before_anything_is_trained(tmp_path: Path) -> None:
    """Issue: the layout is an assumption, checked by a self-test."""
    from tests.support.ipu_instances import everywhere

    (tmp_path / "patch").mkdir()
    (tmp_path / "patch" / "sitecustomize.py").write_text(OTHER_LAYOUT)
    path = f"{tmp_path / 'patch'}:{everywhere()['PYTHONPATH']}"
    job: dict[str, Any] = {**TRAINING, "accumulation": 2, "device_iterations": 2}
    refused = run_ipus(tmp_path / "ipus", 1, 2, code=1, python=sys.executable, variables={"PYTHONPATH": path}, **job)
    assert "lays out a combined batch differently" in log(refused)
    assert not updates(refused)


def test_the_floor_trains_on_ipus(tmp_path: Path, needs: Callable[[str], Path]) -> None:
    """Python 3.8 with torch 1.10: what an SDK 2.6 virtualenv has."""
    job: dict[str, Any] = {**TRAINING, "accumulation": 2, "device_iterations": 2}
    floor = run_ipus(tmp_path / "floor", 2, 4, exact=True, python=str(needs("floor")), **job)
    assert furthest_apart(floor, run_alone(tmp_path / "alone", 4, **job)) < SAME
    half: dict[str, Any] = {**job, "precision": "16.16", "eight_bit_io": True}
    run_ipus(tmp_path / "half", 1, 2, python=str(needs("floor")), **half)
