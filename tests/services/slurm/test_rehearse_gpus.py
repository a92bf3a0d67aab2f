"""Scripts for CUDA and NCCL, rehearsed under a private Slurm: unmodified, with the GPUs that GRES gives each node."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.gpu_scripts import BEGIN
from tests.support.programs import ran

pytestmark = pytest.mark.timeout(900)

TRAINS = (
    BEGIN
    + """
torch.cuda.set_device(local)
torch.manual_seed(0)
model = DDP(torch.nn.Linear(16, 4).cuda(), device_ids=[local])
optimizer, scaler = torch.optim.AdamW(model.parameters(), lr=1e-3), torch.amp.GradScaler("cuda")
for _ in range(3):
    with torch.autocast("cuda", dtype=torch.float16):
        loss = model(torch.randn(8, 16, device="cuda")).square().mean()
    optimizer.zero_grad(); scaler.scale(loss).backward(); scaler.step(optimizer); scaler.update()
print(f"rank {rank} of {dist.get_world_size()} on {torch.cuda.get_device_name()}", flush=True)
dist.destroy_process_group()
"""
)


# As who has one torchrun on each node of a job starts it.
WITH_TORCHRUN = """#!/bin/bash
[ "$LOCAL_RANK" = 0 ] || exit 0
exec python -m torch.distributed.run --nnodes 2 --node-rank $((RANK / LOCAL_WORLD_SIZE)) \\
  --nproc-per-node "$LOCAL_WORLD_SIZE" --master-addr "$MASTER_ADDR" --master-port $((MASTER_PORT + 1)) train.py
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, needs: Callable[[str], Path]) -> Path:
    needs("slurm")
    # What is compiled once for each torch stays where it is.
    monkeypatch.setenv("XDG_CACHE_HOME", os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


def rehearsed(
    project: Path, script: str, *flags: str, start: tuple[str, ...] = ("python", "train.py")
) -> tuple[int, dict[str, Any]]:
    """Rehearse `script` on the catalog's GPU cluster; return the exit code and what `--json` says."""
    (project / "train.py").write_text(script)
    subprocess.run(["git", "init", "-q"], cwd=project, check=True)
    subprocess.run(["git", "add", "-A"], cwd=project, check=True)
    command = [sys.executable, "-m", "trainjob.cli.main", "rehearse", "--cluster", "slurm-gpu", "--json", *flags]
    # As in an activated virtualenv: a command is run by the Python on the user's PATH.
    environ = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    words = [*command, "--", *start]
    ended = ran(words, folder=project, environ=environ, timeout_s=800)
    assert ended.stdout, ended.stderr
    return ended.returncode, json.loads(ended.stdout)


def test_a_training_that_ends_with_values_that_are_not_finite_fails_the_rehearsal(project: Path) -> None:
    script = """
import torch
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    (model(torch.ones(2, 4)).sum() * float("nan")).backward()
    optimizer.step()
"""
    code, verdict = rehearsed(project, script, "--instances", "1", "--no-gpus")
    assert (code, verdict["state"], verdict["passed"]) == (1, "COMPLETED", False)
    (found,) = [one for one in verdict["findings"] if one["code"] == "not-finite"]
    assert found["evidence"].startswith("update 1: loss nan")


@pytest.mark.parametrize("instances", [4, pytest.param(8, marks=pytest.mark.full)])
def test_an_unmodified_script_trains_on_the_gpus_of_two_nodes(project: Path, instances: int) -> None:
    code, verdict = rehearsed(project, TRAINS, "--instances", str(instances), "--hosts", "2", "--keep")
    assert (code, verdict["state"], verdict["same_bytes"]) == (0, "COMPLETED", True)
    used = [line.split(" of ")[0] for line in verdict["gpus"][:instances]]
    assert used == [f"rank {rank}: GPU {rank % (instances // 2)}" for rank in range(instances)]
    folder = Path(verdict["folder"]) / "logs"
    assert (
        f"the all-reduce of {instances} ranks on 2 nodes gave the right sum" in (folder / "scheduler.out").read_text()
    )
    logs = sorted(folder.glob("rank-*.log"))
    reported = [f"rank {rank} of {instances} on Stand-in GPU" in log.read_text() for rank, log in enumerate(logs)]
    assert reported == [True] * instances


@pytest.mark.full
def test_torchrun_on_each_of_two_nodes_starts_the_ranks(project: Path) -> None:
    (project / "start.sh").write_text(WITH_TORCHRUN)
    flags = ("--instances", "8", "--hosts", "2", "--keep")
    code, verdict = rehearsed(project, TRAINS, *flags, start=("bash", "start.sh"))
    assert (code, verdict["state"]) == (0, "COMPLETED")
    used = [line.split(" of ")[0] for line in verdict["gpus"][:8]]
    assert used == [f"rank {rank}: GPU {rank % 4}" for rank in range(8)]
    logs = (Path(verdict["folder"]) / "logs").glob("rank-*.log")
    reported = "".join(log.read_text() for log in logs)
    assert [f"rank {rank} of 8 on Stand-in GPU" in reported for rank in range(8)] == [True] * 8


def test_a_mistake_fails_the_rehearsal_with_the_line_and_the_cure(project: Path) -> None:
    code, verdict = rehearsed(project, BEGIN + "dist.all_reduce(torch.ones(2, device='cuda'))", "--instances", "2")
    assert (code, verdict["state"]) == (1, "FAILED")
    assert "Duplicate GPU detected" in verdict["outcome"]
    assert "torch.cuda.set_device(LOCAL_RANK)" in verdict["outcome"]
