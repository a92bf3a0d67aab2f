"""Commands that start the ranks of their node: how many are started, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

import trainjob


def sizes(cluster: str, *command: str, **settings: Any) -> tuple[int, int]:
    topology = trainjob.plan(cluster=cluster, instances=8, command=list(command), **settings).plan.topology
    return topology.instances, topology.replicas


def test_a_launcher_is_started_once_per_node_and_drives_a_replica_for_each_rank() -> None:
    assert sizes("slurm-gpu", "torchrun", "train.py") == (2, 8)
    assert sizes("slurm-gpu", "python", "train.py") == (8, 8)
    assert sizes("slurm-gpu", "python", "train.py", command_per="node") == (2, 8)
    assert sizes("slurm-gpu", "torchrun", "train.py", command_per="rank") == (8, 8)


def test_accelerate_starts_no_ranks_on_cpus_so_that_each_is_started() -> None:
    assert sizes("local", "accelerate", "launch", "train.py") == (8, 8)
    assert sizes("local", "torchrun", "train.py") == (1, 8)


def test_the_plan_says_what_is_started() -> None:
    job = trainjob.plan(cluster="slurm-gpu", instances=8, command=["torchrun", "train.py"])
    facts = dict(job.plan.facts)
    assert facts["launcher"] == "torchrun starts 4 ranks on each of 2 nodes: the command runs once per node"


def test_a_contradiction_is_refused() -> None:
    with pytest.raises(trainjob.UserError, match="--nnodes is 1, and the job has 2 nodes"):
        sizes("slurm-gpu", "torchrun", "--nnodes", "1", "train.py")


def test_only_a_command_is_started_once_per_node_and_not_on_ipus() -> None:
    with pytest.raises(trainjob.UserError, match="the runtime starts a task's ranks"):
        trainjob.plan(cluster="slurm-gpu", task="digits-cnn", command_per="node")
    with pytest.raises(trainjob.UserError, match="poprun starts every instance"):
        sizes("pod64", "torchrun", "train.py", command_per="node")
