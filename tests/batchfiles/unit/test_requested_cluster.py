"""The cluster that a batch file's directives ask for."""

from __future__ import annotations

from pathlib import Path

import pytest

from batchfiles.rehearsal import requested_cluster
from batchfiles.slurm.request import SiteFacts
from batchfiles.slurm.script import BatchScript, script_of
from tests.support.cases import each


def script(*directives: str, body: str = "srun python train.py") -> BatchScript:
    lines = ["#!/bin/bash", *(f"#SBATCH {directive}" for directive in directives), body]
    return script_of(Path("train.sbatch"), "\n".join(lines).encode(), SiteFacts())


@each(
    ("directives", "nodes", "gpus", "kind", "gres"),
    [
        (["--nodes=2", "--gres=gpu:a100:4"], 2, 4, "a100", "gpu"),
        (["--nodes=2", "--gres=gpu:3g.71gb:1"], 2, 1, "3g.71gb", "gpu"),
        (["-N 4-8", "--gpus-per-node=h100:8", "--exclusive"], 4, 8, "h100", "gpu"),
        (["--nodes=2", "--gres=dcu:4"], 2, 4, None, "dcu"),
        (["--nodes=2", "--gres=nvme:400,gpu:a100:4"], 2, 4, "a100", "gpu"),
        (["--gpus=16"], 2, 8, None, "gpu"),
        (["--ntasks=16", "--gpus-per-task=1"], 2, 8, None, "gpu"),
        (["--ntasks=8"], 1, 0, None, "cpu"),
        ([], 1, 0, None, "cpu"),
    ],
)
def test_it_has_what_the_file_asks_for_and_a_node_to_spare(
    directives: list[str], nodes: int, gpus: int, kind: str | None, gres: str
) -> None:
    file = script(*directives)
    node = requested_cluster.cluster_from(file).node
    assert requested_cluster.nodes_of(file) == nodes
    assert (node.count, node.accelerators, node.type, node.gres_name) == (nodes + 1, gpus, kind, gres)


@pytest.mark.parametrize(
    ("directives", "cpus"),
    [
        (["--gres=gpu:4", "--cpus-per-gpu=6"], 64),
        (["--gres=gpu:4", "--cpus-per-gpu=6", "--exclusive"], 24),
        (["--gres=gpu:4", "--ntasks-per-node=2", "--cpus-per-task=8", "--exclusive"], 16),
        (["--gres=gpu:4", "--exclusive"], 64),
    ],
)
def test_whole_nodes_have_the_cpus_for_which_the_file_asks(directives: list[str], cpus: int) -> None:
    assert requested_cluster.cluster_from(script("--nodes=2", *directives)).node.cpus == cpus


def test_it_has_the_cpus_the_partition_and_the_features() -> None:
    file = script("--nodes=1", "--ntasks-per-node=4", "--cpus-per-task=72", "-p fast,slow", "-C 'a100&ib'")
    cluster = requested_cluster.cluster_from(file)
    assert cluster.node.cpus == 288
    assert cluster.directives["partition"] == "fast,slow"


def test_only_options_that_the_file_mentions_are_accepted() -> None:
    file = script("--nodes=1", body="srun --container-image=a.sqsh --no-container-mount-home python train.py")
    assert requested_cluster.site_options(file) == ["container-image=", "no-container-mount-home"]


@pytest.mark.parametrize(
    ("directives", "body", "gpus", "whole"),
    [
        (["-N 2"], "srun --ntasks-per-node=4 --gpus-per-task=1 python train.py", 4, True),
        (["-N 2", "--exclusive"], "srun torchrun --nnodes 2 --nproc-per-node 8 train.py", 8, True),
        (["-N 1", "--gres=gpu:2"], "srun python train.py", 2, False),
        (["-N 2"], "srun python train.py", 0, False),
        ([], "ray start --head", 0, False),
    ],
)
def test_gpus_that_no_directive_asks_for_come_with_whole_nodes(
    directives: list[str], body: str, gpus: int, whole: bool
) -> None:
    file = script(*directives, body=body)
    assert (requested_cluster.cluster_from(file).node.accelerators, requested_cluster.takes_whole_nodes(file)) == (
        gpus,
        whole,
    )


@pytest.mark.parametrize(
    ("directives", "nodes", "gpus"),
    [
        (["--ntasks=8", "--ntasks-per-node=4", "--gpus-per-task=1"], 2, 4),
        (["--ntasks=32", "--ntasks-per-node=16", "--gpus-per-task=1"], 2, 16),
        (["--ntasks=8", "--ntasks-per-node=4", "--gpus=8"], 2, 4),
        (["--ntasks=16", "--gpus-per-task=1"], 2, 8),
    ],
)
def test_tasks_of_a_node_say_how_many_of_all_gpus_it_has(directives: list[str], nodes: int, gpus: int) -> None:
    file = script(*directives)
    assert requested_cluster.nodes_of(file) == nodes
    assert requested_cluster.cluster_from(file).node.accelerators == gpus


def test_whole_nodes_without_a_directive_have_the_cpus_for_which_the_file_asks() -> None:
    file = script("--ntasks=1", "--cpus-per-task=32", body="export CUDA_VISIBLE_DEVICES=1\naccelerate launch train.py")
    assert requested_cluster.takes_whole_nodes(file)
    assert requested_cluster.cluster_from(file).node.cpus == 32


def test_a_resource_beside_the_gpus_does_not_take_their_place() -> None:
    node = requested_cluster.cluster_from(script("--gpus-per-node=4", "--gres=gpumem:24G")).node
    assert (node.accelerators, node.gres, node.type) == (4, None, None)


def test_an_option_that_no_slurm_has_is_a_plugins() -> None:
    assert requested_cluster.site_options(script("--quota-kind=spot", "--bb-lite", "--nodez=1", "--gres:gpu=4")) == [
        "quota-kind=",
        "bb-lite",
    ]
