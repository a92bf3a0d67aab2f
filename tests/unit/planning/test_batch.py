"""Batch arithmetic, as tables of numbers."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.cases import each
from tests.support.plan_cases import OWN, label, local, planned, pod, slurm
from trainjob.contract.batch import share
from trainjob.contract.tasks import BUILT_IN
from trainjob.planning.batch import split


def batch_of(cluster: Any, **job: Any) -> Any:
    return planned(cluster, **job).batch


@pytest.mark.parametrize(
    ("micro_batch", "accumulation", "iterations", "replicas", "instances", "loader_steps"),
    [  # the lessons' figures on 50,000 samples (reference/ipu.md 9.4)
        (64, 8, 4, 1, 1, 24),
        (64, 8, 4, 8, 1, 3),
        (64, 8, 4, 8, 4, 3),
        (32, 8, 4, 4, 1, 12),
        (8, 1, 1, 1, 1, 6250),
        (8, 1, 1, 2, 1, 3125),
        (8, 1, 1, 2, 2, 3125),
    ],
)
def test_known_figures(
    micro_batch: int, accumulation: int, iterations: int, replicas: int, instances: int, loader_steps: int
) -> None:
    batch = batch_of(
        pod(16),
        task=OWN,
        samples=50_000,
        micro_batch=micro_batch,
        accumulation=accumulation,
        device_iterations=iterations,
        replicas=replicas,
        instances=instances,
    )
    assert batch.blocks_per_epoch == loader_steps
    assert batch.updates_per_epoch == loader_steps * iterations


@each(
    ("cluster", "job", "global_batch", "updates_per_epoch", "dropped", "padded"),
    [
        (local(), {}, 4, 359, 1, 0),
        (local(), {"instances": 2}, 8, 179, 5, 0),
        (local(), {"instances": 2, "remainder": "pad"}, 8, 180, 0, 3),
        (local(), {"micro_batch": 16, "accumulation": 4}, 64, 22, 29, 0),
        (local(), {"micro_batch": 1437}, 1437, 1, 0, 0),
        (local(), {"micro_batch": 2000, "remainder": "pad"}, 2000, 1, 0, 563),
        (slurm(), {"instances": 16}, 64, 22, 29, 0),
        (pod(64, 4), {}, 256, 5, 157, 0),
        (pod(4), {"device_iterations": 4}, 16, 88, 29, 0),
        (pod(256, 16), {}, 1024, 1, 413, 0),
    ],
)
def test_updates_of_an_epoch(
    cluster: Any, job: dict[str, Any], global_batch: int, updates_per_epoch: int, dropped: int, padded: int
) -> None:
    batch = batch_of(cluster, **job)
    assert (batch.global_batch, batch.updates_per_epoch) == (global_batch, updates_per_epoch)
    assert (batch.dropped, batch.padded) == (dropped, padded)


# How many tokens a text has is known when it runs.
@pytest.mark.parametrize("task", sorted(name for name, facts in BUILT_IN.items() if facts.samples is not None))
@pytest.mark.parametrize("ipus", [4, 16, 64, 128, 256])
def test_built_in_tasks_have_an_update_on_every_pod_by_default(task: Any, ipus: int) -> None:
    assert batch_of(pod(ipus, max(1, ipus // 16)), task=task).updates_per_epoch >= 1


@each(
    ("cluster", "job", "accumulation"),
    [
        (local(), {}, 1),
        (local(), {"global_batch": 64}, 16),
        (local(), {"global_batch": 64, "instances": 4}, 4),
        (local(), {"global_batch": 64, "instances": 2, "micro_batch": 32}, 1),
        (pod(16), {"global_batch": 128}, 2),
        # a pipeline over n IPUs is full with 2n - 1 micro batches (reference/ipu.md 4.8)
        (pod(16), {"task": OWN, "ipus_per_replica": 1}, 1),
        (pod(16), {"task": OWN, "ipus_per_replica": 2}, 3),
        (pod(16), {"task": OWN, "ipus_per_replica": 4}, 7),
        (pod(16), {"task": OWN, "ipus_per_replica": 2, "accumulation": 5}, 5),
    ],
)
def test_accumulation(cluster: Any, job: dict[str, Any], accumulation: int) -> None:
    assert batch_of(cluster, **job).accumulation == accumulation


@each(
    ("job", "samples"),
    [
        ({}, 1437),
        ({"samples": 1437}, 1437),
        ({"data": "digits"}, 1437),
        ({"data": "mine"}, None),
        ({"data": "mine", "samples": 5000}, 5000),
        ({"task": "ffnet-toy"}, 4096),
        ({"task": "ffnet-toy", "samples": 256}, 256),  # it makes its data: as many as asked
        ({"task": OWN}, None),
        ({"task": OWN, "samples": 500}, 500),
    ],
)
def test_samples(job: dict[str, Any], samples: int | None) -> None:
    batch = batch_of(local(), **job)
    assert batch.samples == samples
    assert (batch.updates_per_epoch is None) == (samples is None)


@pytest.mark.parametrize(
    ("job", "epochs", "updates", "total"),
    [
        ({}, 14, None, 14 * 359),
        ({"epochs": 2}, 2, None, 2 * 359),
        ({"updates": 50}, None, 50, 50),
        ({"task": OWN}, 1, None, None),
        ({"task": OWN, "updates": 7}, None, 7, 7),
    ],
)
def test_length_of_the_run(job: dict[str, Any], epochs: int | None, updates: int | None, total: int | None) -> None:
    batch = batch_of(local(), **job)
    assert (batch.epochs, batch.updates, batch.total_updates) == (epochs, updates, total)


@pytest.mark.parametrize(
    ("cluster", "job", "factor"),
    [
        (local(), {}, 1),
        (local(), {"instances": 4, "accumulation": 8}, 1),
        (local(), {"reduction": "sum", "instances": 4, "accumulation": 8}, 32),
        (local(), {"reduction": "sum", "loss_is_summed": True, "instances": 4, "accumulation": 8}, 128),
        (local(), {"loss_is_summed": True}, 4),
        (pod(16), {"reduction": "sum"}, 16),
    ],
    ids=label,
)
def test_learning_rate_effect(cluster: Any, job: dict[str, Any], factor: int) -> None:
    assert planned(cluster, **job).learning_rate_effect.factor == factor


def test_learning_rate_effect_says_why() -> None:
    effect = planned(local(), instances=2, accumulation=8, reduction="sum", optimizer="adamw").learning_rate_effect
    assert effect.because.startswith("sum over 8 accumulation × 2 replicas; AdamW")


def test_a_command_has_no_batch() -> None:
    plan = planned(slurm(), command=["./train"])
    assert (plan.batch, plan.learning_rate_effect) == (None, None)


@pytest.mark.parametrize(
    ("instances", "workers", "samples", "most"), [(1, 0, 10, 10), (2, 0, 10, 5), (2, 2, 10, 3), (5, 2, 10, 1)]
)
def test_split(instances: int, workers: int, samples: int, most: int) -> None:
    assert split(instances, workers, samples) == most


def test_shares_follow_each_other() -> None:
    batch = batch_of(pod(64, 4), instances=8)
    assert [share(batch.global_batch, 8, index) for index in (0, 1, 7)] == [(0, 32), (32, 64), (224, 256)]
