"""Launchers that start the ranks of their node, as a job starts them: once per node, here two nodes on one machine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.waiting import LIMIT_S, until
from trainjob.contract.paths import RunPaths
from trainjob.launch.rank_environment import free_port

TORCHRUN = (sys.executable, "-m", "torch.distributed.run")
SCRIPT = """
import os, signal, sys, time
import torch
import torch.distributed as dist

asked = []
signal.signal(signal.SIGUSR1, lambda *_: asked.append(1))
dist.init_process_group("gloo")
ones = torch.ones(1)
dist.all_reduce(ones)
print(f"rank {dist.get_rank()} local {os.environ['LOCAL_RANK']} sum {ones.item():.0f}", flush=True)
if "wait" in sys.argv:
    while not asked:
        time.sleep(0.05)
    print(f"rank {dist.get_rank()} was asked", flush=True)
if "fail" in sys.argv and dist.get_rank() == 3:
    sys.exit(9)
# Without it torch 2.13 now and then aborts as Python ends.
dist.destroy_process_group()
"""


class Nodes:
    """Two nodes, each with a launcher of ours that starts one of the user's, which starts two ranks."""

    def __init__(self, folder: Path, *command: str) -> None:
        self.paths = RunPaths(folder)
        for made in (self.paths.logs, self.paths.code):
            made.mkdir(parents=True)
        script = folder / "train.py"
        script.write_text(SCRIPT)
        self.paths.attempt.write_text("1\n")
        meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port(int.from_bytes(os.urandom(3), "big")))}
        words = [sys.executable, "-m", "trainjob.launch", "--launcher", "slurm", "--ranks-per-node", "2", str(folder)]
        self.launchers = [
            subprocess.Popen(
                [*words, "--", *TORCHRUN, str(script), *command], env={**os.environ, **meeting, **_place(node)}
            )
            for node in range(2)
        ]

    def codes(self) -> list[int]:
        return [launcher.wait(LIMIT_S) for launcher in self.launchers]

    def printed(self) -> list[str]:
        logs = [log for log in map(self.paths.rank_log, range(2)) if log.exists()]
        return sorted(line for log in logs for line in log.read_text().splitlines())

    def end(self) -> None:
        for launcher in self.launchers:
            launcher.kill()
            launcher.wait(LIMIT_S)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Nodes]]:
    started: list[Nodes] = []

    def begin(*command: str) -> Nodes:
        started.append(Nodes(tmp_path / "run", *command))
        return started[-1]

    yield begin
    for nodes in started:
        nodes.end()


def _place(node: int) -> dict[str, str]:
    place = {"PROCID": node, "LOCALID": 0, "NTASKS": 2, "NTASKS_PER_NODE": 1, "STEP_NUM_TASKS": 2, "NODEID": node}
    return {**{f"SLURM_{name}": str(value) for name, value in place.items()}, "SLURM_STEP_TASKS_PER_NODE": "1(x2)"}


def test_the_ranks_of_all_nodes_form_one_world(start: Callable[..., Nodes]) -> None:
    nodes = start()
    assert nodes.codes() == [0, 0]
    ranks = [line for line in nodes.printed() if line.startswith("rank")]
    assert ranks == [f"rank {rank} local {rank % 2} sum 4" for rank in range(4)]


def test_a_request_to_checkpoint_reaches_the_ranks_and_not_their_launcher(start: Callable[..., Nodes]) -> None:
    nodes = start("wait")
    until(lambda: sum(line.endswith("sum 4") for line in nodes.printed()) == 4, "the ranks to meet")
    for launcher in nodes.launchers:
        launcher.send_signal(signal.SIGUSR1)
    assert nodes.codes() == [0, 0]
    assert [line for line in nodes.printed() if line.endswith("asked")] == [f"rank {n} was asked" for n in range(4)]


def test_a_rank_that_fails_ends_its_node(start: Callable[..., Nodes]) -> None:
    nodes = start("fail")
    # As torchrun says it: its own code is 1, and the rank's stands in its report.
    assert nodes.launchers[1].wait(LIMIT_S) == 1
    assert any("exitcode" in line and ": 9" in line for line in nodes.printed())
