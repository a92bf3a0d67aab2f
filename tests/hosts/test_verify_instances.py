"""`trainjob verify` on healthy tasks, on tasks that are wrong in one way each, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from local_runs import Here
from verdicts import runs_left, verify, verify_task

# The others differ in their evidence alone, which tests/unit/verify has crafted traces for.
_QUICK = {
    "Shuffled": "sample-order",
    "Scaled": "mean-against-sum",
    "Running": "batch-norm-not-synchronised",
    "Late": "unknown",
}
_LONG = {
    "Padded": "padding",
    "OwnDropout": "dropout-stream",
    "Augmented": "sample-values",
    "Uneven": "uneven-batch",
    "Synchronised": "batch-norm-synchronised",
    "ByRank": "unknown",
}
_TASKS = [*_QUICK.items(), *(pytest.param(*pair, marks=pytest.mark.full) for pair in _LONG.items())]


def codes(verdict):
    return [finding["code"] for finding in verdict["findings"]]


@pytest.mark.parametrize(
    ("engine", "instances"),
    [("naive", 4), *(pytest.param(*pair, marks=pytest.mark.full) for pair in (("ddp", 2), ("naive", 2), ("ddp", 4)))],
)
def test_digits_cnn_with_dropout_trains_on_instances_as_on_one(here: Here, engine: str, instances: int) -> None:
    asked = ("--engine", engine, "--instances", str(instances), "--updates", "2", "--micro-batch", "4")
    verdict = verify(here, "--task", "digits-cnn", *asked)
    assert verdict["equal"]
    assert [one["update"] for one in verdict["updates"]] == [1, 2]
    assert verdict["instances"] == instances
    assert verdict["engine"] == engine


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
def test_a_net_that_amplifies_rounding_is_not_equal_and_told_so(here: Here) -> None:
    """Two samples of 32 × 32 leave two values to normalise over in the last blocks."""
    verdict = verify(here, *_RESNET, "--instances", "4", "--micro-batch", "2", code=1, limit_s=1100)
    assert codes(verdict) == ["amplified-rounding"]
    assert verdict["inconclusive"]


def test_a_task_that_amplifies_rounding_shows_nothing_and_is_not_blamed(here: Here) -> None:
    verdict = verify_task(here, "Chaotic", "--accumulation", "2", "--learning-rate", "1", code=1)
    assert not verdict["equal"]
    assert verdict["inconclusive"]
    assert codes(verdict) == ["amplified-rounding"]
    assert len(verdict["runs"]) == 3  # the control among them


def test_batch_norm_accumulation_and_a_sum_are_equal_with_buffers_apart_and_the_runs_removed(here: Here) -> None:
    asked = ("--micro-batch", "2", "--accumulation", "2", "--reduction", "sum")
    verdict = verify_task(here, "Right", *asked)
    assert verdict["equal"]
    assert all(one["buffers"] > 0.01 and one["gradients"] < 1e-12 for one in verdict["updates"])
    assert not verdict["kept"]
    assert runs_left(here) == []


def test_parameter_averaging_is_shown_wrong(here: Here) -> None:
    verdict = verify(here, "--engine", "parameter-averaging", "--updates", "4", code=1)
    assert codes(verdict) == ["parameter-averaging"]
    assert not verdict["equal"]


@pytest.mark.parametrize(("task", "code"), _TASKS)
def test_a_task_that_is_wrong_is_told_what_is_wrong_and_its_runs_stay(here: Here, task: str, code: str) -> None:
    verdict = verify_task(here, task, code=1)
    assert codes(verdict) == [code]
    assert verdict["kept"]
    assert sorted(folder.rpartition("/")[2] for folder in verdict["runs"]) == runs_left(here)


@pytest.mark.full
def test_float32_is_judged_by_the_first_gradients_alone(here: Here) -> None:
    verdict = verify_task(here, "Right", "--dtype", "float32")
    assert verdict["equal"]
    assert "first update's gradients alone" in verdict["judged"]


def test_a_failing_experiment_shows_the_end_of_the_failing_rank_and_stays(here: Here) -> None:
    told = verify_task(here, "Failing", code=1)
    assert "RuntimeError: the loss is out of stock" in told["error"]
    (left,) = runs_left(here)
    assert f"trainjob logs {left}" in told["error"]


def test_a_command_is_refused(here: Here) -> None:
    for flags in ([], ["--resume"]):
        told = here.json("verify", *flags, "--", "python", "-c", "1", code=1)
        assert "give --task" in told["error"]


def test_a_cluster_elsewhere_is_refused(here: Here) -> None:
    assert "of kind slurm" in verify(here, "--cluster", "slurm-gpu", code=1)["error"]


def test_another_type_is_a_usage_error(here: Here) -> None:
    assert "expected float64 or float32" in here.run("verify", "--dtype", "float16", code=2).stderr
