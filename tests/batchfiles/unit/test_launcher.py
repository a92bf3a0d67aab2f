"""What stands in for launchers that are not installed: the ranks that each would start."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

import pytest

from tests.support import ROOT


class BecameError(Exception):
    """The words that a process was replaced by."""


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> object:
    path = ROOT / "batchfiles/rehearsal/programs/launcher.py"
    spec = importlib.util.spec_from_file_location("launcher", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    def become(_program: str, words: list[str], _environment: object) -> None:
        raise BecameError(words)

    monkeypatch.setattr(os, "execve", become)
    monkeypatch.chdir(tmp_path)
    for name in ("WORLD_SIZE", "NODE_RANK", "MASTER_ADDR", "MASTER_PORT", "PET_NNODES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")

    def run(name: str, *words: str) -> str:
        with pytest.raises(BecameError) as became:
            module.main(name, list(words))
        return " ".join(became.value.args[0]).removeprefix(f"{sys.executable} -m torch.distributed.run ")

    return run


def static(nodes: int, ranks: int, rank: int, host: str, port: int) -> str:
    return f"--nnodes {nodes} --nproc-per-node {ranks} --node-rank {rank} --master-addr {host} --master-port {port}"


@pytest.mark.parametrize(
    ("words", "became"),
    [
        (
            "accelerate launch --num_processes=8 --num_machines 2 --machine_rank 1 --main_process_ip n1 "
            "--main_process_port 7 --multi_gpu t.py --x",
            static(2, 4, 1, "n1", 7) + " t.py --x",
        ),
        (
            "accelerate launch -m mine.train",
            static(1, 2, 0, "127.0.0.1", 29500) + " -m mine.train",
        ),
        (
            "deepspeed --num_gpus 4 --master_port 7 t.py --deepspeed c.json",
            static(1, 4, 0, "127.0.0.1", 7) + " t.py --deepspeed c.json",
        ),
        (
            "deepspeed --hostfile hosts --no_ssh --node_rank 1 --master_addr n1 --master_port 7 t.py",
            static(2, 3, 1, "n1", 7) + " t.py",
        ),
        (
            "accelerate launch --config_file one.yaml t.py",
            static(1, 1, 0, "127.0.0.1", 29500) + " t.py",
        ),
        (
            "deepspeed --num_nodes 2 --num_gpus 4 --master_port 7 t.py",
            static(1, 4, 0, "127.0.0.1", 7) + " t.py",
        ),
        (
            "composer --world_size 8 --node_rank 1 --master_addr n1 --master_port 7 -n 4 t.py c.yaml",
            static(2, 4, 1, "n1", 7) + " t.py c.yaml",
        ),
        (
            "tune run --nnodes 1 --nproc_per_node 2 t.py --config c",
            static(1, 2, 0, "127.0.0.1", 29500) + " t.py --config c",
        ),
    ],
)
def test_torchrun_starts_what_the_launcher_would(start, words: str, became: str, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "hosts").write_text("n1 slots=3\nn2 slots=3\n")
    (tmp_path / "t.py").touch()
    (tmp_path / "one.yaml").write_text("distributed_type: 'NO'\nnum_processes: 2\nmain_process_port: null\n")
    assert start(*words.split()) == became


def test_nodes_without_a_number_find_theirs_where_they_meet(start) -> None:  # type: ignore[no-untyped-def]
    words = (
        "launch --num_processes 4 --num_machines 2 --rdzv_backend c10d --main_process_ip n1 --main_process_port 7 t.py"
    )
    meets = "--rdzv-backend c10d --rdzv-endpoint n1:7 --rdzv-id standin t.py"
    assert start("accelerate", *words.split()) == f"--nnodes 2 --nproc-per-node 2 {meets}"


def test_other_nodes_are_reached_by_srun(start, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "hosts").write_text("n1 slots=3\nn2 slots=3\n")
    words = ("--hostfile", "hosts", "--master_port", "7", "t.py", "--lr", "1")
    became = start("deepspeed", *words)
    assert "srun --nodes 2 --ntasks 2 sh -c " in became
    assert ' deepspeed --no_ssh --node_rank "$SLURM_NODEID" ' in became
    assert became.endswith("--master_addr n1 --hostfile hosts --master_port 7 t.py --lr 1")
    of_slurm = start("deepspeed", "--launcher", "slurm", *words)
    assert of_slurm.endswith(f"srun --nodes 2 --ntasks 6 {sys.executable} -u t.py --lr 1")
