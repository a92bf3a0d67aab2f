"""Launchers that start the ranks of their node, rehearsed: the real torchrun, under a real Slurm."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

SCRIPT = """
import time
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
ones = torch.ones(1)
dist.all_reduce(ones)
print(f"rank {dist.get_rank()} sums to {ones.item():.0f}", flush=True)
time.sleep(6)  # long enough to be seen
dist.destroy_process_group()
"""


@pytest.fixture
def rehearse(needs: Callable[[str], Path], tmp_path: Path) -> Callable[..., tuple[int, dict[str, Any], str]]:
    needs("slurm")
    project = tmp_path / "project"
    project.mkdir()
    (project / "train.py").write_text(SCRIPT)
    program = Path(sys.executable).with_name("trainjob")

    def run(*flags: str) -> tuple[int, dict[str, Any], str]:
        job = ("--cluster", "slurm-gpu", "--instances", "4", "--hosts", "2", "--no-gpus", "--keep", "--json", *flags)
        words: list[str | Path] = [program, "rehearse", *job, "--", "torchrun", "train.py"]
        environ = {**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}:/usr/sbin:/sbin"}
        ended = subprocess.run(words, cwd=project, env=environ, capture_output=True, text=True, timeout=300)
        verdict = json.loads(ended.stdout)
        logs = sorted(Path(verdict["folder"], "logs").glob("rank-*.log"))
        return ended.returncode, verdict, "".join(log.read_text() for log in logs)

    return run


def test_torchrun_starts_once_per_node_and_all_ranks_form_one_world(
    rehearse: Callable[..., tuple[int, dict[str, Any], str]],
) -> None:
    code, verdict, printed = rehearse()
    assert (code, verdict["passed"]) == (0, True), verdict["outcome"]
    assert sorted(line for line in printed.splitlines() if line.startswith("rank")) == [
        f"rank {rank} sums to 4" for rank in range(4)
    ]


def test_ranks_that_form_worlds_of_their_own_fail_the_rehearsal(
    rehearse: Callable[..., tuple[int, dict[str, Any], str]],
) -> None:
    code, verdict, printed = rehearse("--command-per", "rank")
    assert printed.count("rank 0 sums to 1") == 4
    assert (code, verdict["passed"]) == (1, False)
    assert "4 of 1 rank" in verdict["outcome"]
    assert "--command-per node" in verdict["outcome"]
