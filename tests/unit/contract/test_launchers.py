"""Launchers that start the ranks of their node: found in a command, told about their node, and held to the plan."""

from __future__ import annotations

import pytest

from tests.support.cases import each
from trainjob.contract.programs import launchers
from trainjob.contract.programs.launchers import LaunchNode

NODE = LaunchNode(
    nodes=2,
    node_rank=1,
    ranks=4,
    address="10.0.0.1",
    port=23456,
    run_id="k3xq",
    host_file="/runs/k3xq/hostfile",
    logs="/runs/k3xq/logs",
)


@each(
    ("command", "name"),
    [
        ("torchrun train.py", "torchrun"),
        ("/opt/venv/bin/torchrun --max-restarts 2 train.py", "torchrun"),
        ("python -m torch.distributed.run train.py", "torchrun"),
        ("python3.11 -u -m torch.distributed.launch train.py", "torchrun"),
        ("uv run --with wandb torchrun train.py", "torchrun"),
        ("conda run -n train accelerate launch train.py", "accelerate launch"),
        ("env A=b deepspeed train.py", "deepspeed"),
        ("uv run python -m accelerate.commands.launch train.py", "accelerate launch"),
        ("composer train.py", "composer"),
        ("tune run full_finetune_distributed --config x", "tune run"),
        ("python train.py torchrun", None),
        ("python -m my_package torchrun", None),
        ("accelerate config", None),
        ("bash train.sh torchrun", None),
        ("uv run train.py torchrun", None),
    ],
)
def test_a_launcher_is_found_where_a_command_begins(command: str, name: str | None) -> None:
    found = launchers.find(command.split())
    assert (found and found.launcher.name) == name


def test_torchrun_reads_all_from_its_environment() -> None:
    command = ["torchrun", "--max-restarts", "2", "train.py", "--lr", "0.1"]
    assert launchers.on_node(command, NODE) == command
    environment = launchers.environment(NODE)
    assert (environment["PET_NNODES"], environment["PET_NODE_RANK"]) == ("2", "1")
    assert environment["PET_NPROC_PER_NODE"] == "4"
    assert environment["PET_RDZV_ENDPOINT"] == "10.0.0.1:23456"
    assert not {"RANK", "LOCAL_RANK"} & set(environment)


def test_accelerate_gets_options_before_those_of_the_user() -> None:
    words = launchers.on_node(["accelerate", "launch", "--mixed_precision", "bf16", "train.py"], NODE)
    assert words[:3] == ["accelerate", "launch", "--multi_gpu"]
    assert words[-3:] == ["--mixed_precision", "bf16", "train.py"]
    assert words[words.index("--num_processes") + 1] == "8"
    assert words[words.index("--machine_rank") + 1] == "1"


def test_composer_writes_what_ranks_print_into_their_logs() -> None:
    words = launchers.on_node(["composer", "train.py"], NODE)
    assert words[words.index("--stdout") + 1].format(rank=5) == "/runs/k3xq/logs/rank-0005.log"
    assert words[words.index("--stderr") + 1] == words[words.index("--stdout") + 1]


TORCHRUN_REPORT = """
train.py FAILED
------------------------------------------------------------
Failures:
[1]:
  time      : 2026-11-24_10:00:01
  host      : node1
  rank      : 4 (local_rank: 0)
  exitcode  : 1 (pid: 411)
  error_file: <N/A>
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-24_10:00:00
  host      : node1
  rank      : 6 (local_rank: 2)
  exitcode  : -9 (pid: 413)
  error_file: <N/A>
  traceback : Signal 9 (SIGKILL) received by PID 413
============================================================
"""


@pytest.mark.parametrize(
    ("command", "printed", "failed"),
    [
        ("torchrun train.py", TORCHRUN_REPORT, (6, -9)),
        ("accelerate launch train.py", TORCHRUN_REPORT, (6, -9)),
        ("torchrun train.py", "loss 0.1", None),
        ("composer train.py", "ERROR:composer.cli.launcher:Rank 5 crashed with exit code 3.\nmore", (5, 3)),
        ("composer train.py", TORCHRUN_REPORT, None),
        ("deepspeed train.py", TORCHRUN_REPORT, None),
        ("python train.py", TORCHRUN_REPORT, None),
    ],
)
def test_the_rank_that_failed_first_is_read_from_a_launchers_report(
    command: str, printed: str, failed: tuple[int, int] | None
) -> None:
    assert launchers.failed_rank(command.split(), printed) == failed


@pytest.mark.parametrize("mode", ["--use_fsdp", "--config_file=fsdp.yaml", "--use_deepspeed"])
def test_a_mode_that_the_user_states_stays(mode: str) -> None:
    assert "--multi_gpu" not in launchers.on_node(["accelerate", "launch", mode, "train.py"], NODE)


def test_deepspeed_reads_its_nodes_from_a_file_and_needs_no_ssh() -> None:
    words = launchers.on_node(["deepspeed", "train.py", "--deepspeed_config", "ds.json"], NODE)
    assert words[1:4] == ["--hostfile", "/runs/k3xq/hostfile", "--no_ssh"]
    assert launchers.host_file(2, 4) == "node-0 slots=4\nnode-1 slots=4\n"


@each(
    ("command", "both"),
    [
        ("torchrun --nnodes 1 train.py", ("--nnodes is 1", "2 nodes")),
        ("torchrun --nnodes=1 train.py", ("--nnodes is 1", "2 nodes")),
        ("torchrun --nproc-per-node 8 train.py", ("--nproc-per-node is 8", "4 ranks on each node")),
        ("torchrun --nproc_per_node=8 train.py", ("--nproc_per_node is 8", "4 ranks on each node")),
        ("torchrun --standalone train.py", ("--standalone", "2 nodes")),
        ("accelerate launch --num_processes 4 train.py", ("--num_processes is 4", "8 ranks")),
        ("deepspeed --num_gpus 8 train.py", ("--num_gpus is 8", "4 ranks on each node")),
        ("composer -n 2 train.py", ("-n is 2", "4 ranks on each node")),
    ],
)
def test_a_contradiction_is_reported_with_both_numbers(command: str, both: tuple[str, str]) -> None:
    found = launchers.contradiction(command.split(), nodes=2, ranks=4)
    assert found is not None
    values, cure = found
    assert all(part in values for part in both)
    assert cure.startswith("take ")


@pytest.mark.parametrize(
    "command",
    [
        "torchrun --nnodes 2 --nproc-per-node 4 train.py",
        "torchrun --nnodes 1:4 --nproc-per-node gpu train.py",  # a range, and as many as there are
        "torchrun train.py --nnodes 1",  # the script's own
        "torchrun -m my.module",
        "python train.py --nproc-per-node 8",
    ],
)
def test_what_agrees_or_is_the_scripts_own_is_accepted(command: str) -> None:
    assert launchers.contradiction(command.split(), nodes=2, ranks=4) is None


def test_one_node_may_stand_alone() -> None:
    assert launchers.contradiction(["torchrun", "--standalone", "train.py"], nodes=1, ranks=4) is None
