"""The eight steps of one update, each replica's samples, and what an hour of the devices costs."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.cases import each
from tests.support.plan_cases import local, planned, pod, slurm
from trainjob.cluster.base import Cluster
from trainjob.cluster.job import Job
from trainjob.planning.picture import steps
from trainjob.planning.rows import arithmetic
from trainjob.planning.rules import Refusal


def listed(cluster: Cluster, **job: Any) -> list[str]:
    return steps(planned(cluster, **job), Job(**job))


def test_the_lessons_picture_of_two_instances_with_two_replicas_each() -> None:
    assert listed(pod(4), instances=2, micro_batch=2, accumulation=2, device_iterations=3, reduction="sum") == [
        "1  once: every instance starts with the same weights W0, from seed 0",
        "2  once: W0 is copied to every IPU",
        "3  each replica takes its share of the global batch: 2 micro batches of 2 samples",
        "4  forward and backward, one micro batch after the other",
        "5  gradients are summed over the replica's 2 micro batches",
        "6  all replicas all-reduce the gradients to their sum over the IPU-Links, within the compiled program",
        "7  every replica takes the same optimizer step: W1 = step(W0, gradient); steps 3 to 7 run 3 times before 8",
        "8  losses return to the host; rank 0 logs their mean over all instances",
        "",
        "share of a global batch of 16 samples, D[0:16]:",
        "  replica 0  D[0:4]",
        "  replica 1  D[4:8]",
        "  replica 2  D[8:12]",
        "  replica 3  D[12:16]",
        "poptorch may take the micro batches of an instance in another order; the weights are the same",
    ]


@each(
    ("job", "step", "text"),
    [
        ({}, 6, "nothing is exchanged: there is one replica"),
        ({"instances": 2, "bucket_mb": 5}, 6, "in buckets of 5 MB"),
        ({"instances": 2, "engine": "naive"}, 6, "to their mean, one parameter after the other"),
        ({"instances": 2, "engine": "parameter-averaging"}, 6, "gradients are not exchanged"),
        ({"instances": 2, "engine": "parameter-averaging"}, 7, "every instance steps by its own gradient"),
        ({"init_from": "/w.safetensors"}, 1, "from /w.safetensors"),
        ({}, 2, "W0 stays in memory: CPUs train"),
        ({}, 5, "one micro batch: nothing to add"),
    ],
)
def test_a_step_tells_what_the_engine_does(job: dict[str, Any], step: int, text: str) -> None:
    assert text in listed(local(), **job)[step - 1]


def test_many_replicas_are_folded_and_a_command_has_no_steps() -> None:
    lines = listed(pod(64, 4), instances=64)
    assert (lines[-2], lines[-1]) == ("  … 55 more replicas like these", "  replica 63  D[252:256]")
    assert listed(local(), command=["x"]) == ["what an update does is up to your own command"]


def test_device_hours_and_money() -> None:
    rows = dict(arithmetic(planned(slurm(time_limit="1-00:30:00", price_per_device_hour=2.5), instances=8)))
    assert rows["device-hours"] == "8 GPU-hours for each hour of training, at most 196.0 by the time limit 1-00:30:00"
    assert rows["price"] == "20.00 for each hour of training, at most 490.00, at 2.5 for each GPU-hour"
    assert dict(arithmetic(planned(pod(4))))["device-hours"] == "4 IPU-hours for each hour of training"
    assert not {"device-hours", "price"} & dict(arithmetic(planned(local(price_per_device_hour=1)))).keys()


def test_the_jobs_own_time_limit_counts() -> None:
    rows = dict(arithmetic(planned(slurm(time_limit="4:00:00"), instances=4, time_limit="2:00:00")))
    assert rows["device-hours"].endswith("at most 8.0 by the time limit 2:00:00")


@pytest.mark.parametrize(
    ("task", "micro_batch", "warned"),
    [("cifar10-resnet50", 1, True), ("cifar10-resnet50", 2, False), ("digits-cnn", 1, False)],
)
def test_micro_batch_1_with_batch_norm_is_a_warning(task: str, micro_batch: int, warned: bool) -> None:
    codes = {warning.code for warning in planned(local(), task=task, micro_batch=micro_batch).warnings}
    assert ("batch-norm-of-one-sample" in codes) is warned


def test_checkpoints_that_follow_failures() -> None:
    rows = dict(arithmetic(planned(slurm(mean_hours_between_failures=400), instances=8, checkpoint_every="auto")))
    assert rows["checkpoints"].startswith("every √(2 × time of one × 400 h between failures ÷ ")
    assert "checkpoints" not in dict(arithmetic(planned(slurm(mean_hours_between_failures=400), instances=8)))
    with pytest.raises(Refusal, match="the cluster file has no mean_hours_between_failures"):
        planned(slurm(), instances=8, checkpoint_every="auto")
