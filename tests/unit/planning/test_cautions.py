"""Warnings: their codes, and just where each begins."""

from __future__ import annotations

from typing import Any

from tests.support.cases import each
from tests.support.plan_cases import OWN, local, planned, pod, slurm


def codes(cluster: Any, **job: Any) -> list[Any]:
    return [warning.code for warning in planned(cluster, **job).warnings]


@each(
    ("cluster", "job", "code", "expected"),
    [
        (local(numa_nodes=2), {"instances": 2}, "more-instances-than-numa-nodes", False),
        (local(numa_nodes=2), {"instances": 3}, "more-instances-than-numa-nodes", True),
        (pod(64, 4, numa_nodes=2), {"instances": 16}, "more-instances-than-numa-nodes", True),
        (local(), {"instances": 64}, "more-instances-than-numa-nodes", False),  # nobody said how many there are
        (slurm(), {"instances": 4}, "replicas-share-an-interface", False),
        (slurm(), {"instances": 8}, "replicas-share-an-interface", True),
        (slurm(), {"instances": 4, "hosts": 4}, "replicas-share-an-interface", False),
        (pod(64, 4), {"instances": 8}, "replicas-share-an-interface", False),  # they reduce over IPU-Links
        (slurm(), {"instances": 8, "task": None, "command": ["hostname"]}, "replicas-share-an-interface", False),
        (slurm(cpus=8), {"workers": 1}, "more-processes-than-cpus", False),
        (slurm(cpus=8), {"workers": 2}, "more-processes-than-cpus", True),
        (local(), {"task": OWN, "samples": 1000, "micro_batch": 100}, "large-global-batch", False),
        (local(), {"task": OWN, "samples": 1000, "micro_batch": 101}, "large-global-batch", True),
        (local(), {"task": OWN, "micro_batch": 10**6}, "large-global-batch", False),  # samples not known
        (local(), {"task": OWN, "samples": 1000, "micro_batch": 50}, "dropped-samples", False),
        (local(), {"task": OWN, "samples": 100, "micro_batch": 95}, "dropped-samples", False),
        (local(), {"task": OWN, "samples": 100, "micro_batch": 94}, "dropped-samples", True),
        (local(), {"task": OWN, "samples": 100, "micro_batch": 94, "remainder": "pad"}, "dropped-samples", False),
        (local(), {"task": OWN, "samples": 100, "micro_batch": 94, "remainder": "pad"}, "padded-samples", True),
        (local(), {"instances": 2}, "learning-rate-factor", False),
        (local(), {"instances": 2, "reduction": "sum"}, "learning-rate-factor", True),
        (local(), {"instances": 2, "reduction": "sum", "optimizer": "adamw"}, "learning-rate-factor", False),
    ],
)
def test_warned(cluster: Any, job: dict[str, Any], code: str, expected: bool) -> None:
    assert (code in codes(cluster, **job)) == expected


def test_texts_have_both_numbers_and_a_cure() -> None:
    (warning,) = planned(local(numa_nodes=2), instances=3).warnings
    assert warning.text == "3 instances on a host of 2 NUMA nodes: some instances will share a node"
    assert warning.cure == "use at most 2 instances per host"
    (warning,) = planned(local(), instances=2, reduction="sum", learning_rate=0.02).warnings
    assert warning.text == "learning rate 0.02 acts as 0.04: sum over 1 accumulation × 2 replicas"
    assert warning.cure == "use --reduction mean, or --learning-rate 0.01"


def test_the_embedded_default_warns_of_nothing() -> None:
    assert codes(local(), instances=2) == []
