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
from trainjob.records import attempts, failure, stacks, usage

TORCHRUN = (sys.executable, "-m", "torch.distributed.run")
SCRIPT = """
import os, signal, sys, time
import torch
import torch.distributed as dist

def wait_for_the_file():
    while not os.path.exists("go"):
        time.sleep(0.05)

def end(code=0):
    # Without it torch 2.13 now and then aborts as Python ends.
    dist.destroy_process_group()
    sys.exit(code)

asked = []
signal.signal(signal.SIGUSR1, lambda *_: asked.append(1))
dist.init_process_group("gloo")
ones = torch.ones(1)
dist.all_reduce(ones)
print(f"process {os.getpid()} of {os.getppid()}", flush=True)
print(f"rank {dist.get_rank()} local {os.environ['LOCAL_RANK']} sum {ones.item():.0f}", flush=True)
if "wait" in sys.argv:
    while not asked:
        time.sleep(0.05)
    print(f"rank {dist.get_rank()} was asked", flush=True)
if "fail" in sys.argv and dist.get_rank() == 3:
    print("about to fail", file=sys.stderr, flush=True)
    end(9)
if "stopped" in sys.argv:
    end(75)
if "stand" in sys.argv:
    wait_for_the_file()
end()
"""


class Nodes:
    """Two nodes, each with a launcher of ours that starts one of the user's, which starts two ranks."""

    def __init__(self, folder: Path, *command: str, before: tuple[str, ...] = ()) -> None:
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
                [*words, "--", *TORCHRUN, *before, str(script), *command], env={**os.environ, **meeting, **_place(node)}
            )
            for node in range(2)
        ]

    def codes(self) -> list[int]:
        return [launcher.wait(LIMIT_S) for launcher in self.launchers]

    def printed(self) -> list[str]:
        return sorted(line for rank in range(4) for line in self.printed_by(rank))

    def printed_by(self, rank: int) -> list[str]:
        log = self.paths.rank_log(rank)
        return log.read_text().splitlines() if log.exists() else []

    def end(self) -> None:
        for launcher in self.launchers:
            launcher.kill()
            launcher.wait(LIMIT_S)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Nodes]]:
    started: list[Nodes] = []

    def begin(*command: str, before: tuple[str, ...] = ()) -> Nodes:
        started.append(Nodes(tmp_path / "run", *command, before=before))
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


def test_a_rank_that_fails_ends_its_node_and_is_named(start: Callable[..., Nodes]) -> None:
    nodes = start("fail")
    # torchrun's own code is 1.
    assert nodes.launchers[1].wait(LIMIT_S) == 9
    named = failure.read(nodes.paths)
    assert named is not None
    assert (named.rank, named.exit_code) == (3, 9)
    assert named.tail[1:] == ["rank 3 local 1 sum 4", "about to fail"]


def test_a_launcher_that_dies_ends_its_ranks_and_is_named(start: Callable[..., Nodes]) -> None:
    nodes = start("wait")
    until(lambda: sum(line.endswith("sum 4") for line in nodes.printed()) == 4, "the ranks to meet")
    agent = _processes(nodes, 3)[1]
    os.kill(agent, signal.SIGKILL)
    assert nodes.launchers[1].wait(LIMIT_S) == 137
    named = failure.read(nodes.paths)
    assert named is not None
    assert (named.rank, named.exit_code, named.signal) == (2, 137, 9)


def test_ranks_that_have_stopped_for_a_checkpoint_are_no_failure(start: Callable[..., Nodes]) -> None:
    """Exit code 75, which torchrun calls a failure."""
    nodes = start("stopped")
    assert nodes.codes() == [0, 0]
    assert failure.read(nodes.paths) is None


def test_each_rank_has_a_log_and_is_watched(start: Callable[..., Nodes]) -> None:
    nodes = start("stand")
    until(lambda: sum(line.endswith("sum 4") for line in nodes.printed()) == 4, "the ranks to meet")
    for rank in range(4):
        head, *lines = nodes.printed_by(rank)
        assert head.startswith(f"--- attempt 1 · rank {rank} of 4 ")
        assert [line for line in lines if line.startswith("rank")] == [f"rank {rank} local {rank % 2} sum 4"]
    pids = {rank: _processes(nodes, rank)[0] for rank in range(4)}
    until(lambda: _pids_seen(nodes.paths) == pids, "a sample of each rank")
    attempts.ask_for_stacks(nodes.paths, "ask-1")
    until(lambda: all(stacks.word(nodes.paths, rank) == "ask-1" for rank in range(4)), "the stacks of each rank")
    for rank in range(4):
        kept = stacks.read(nodes.paths, rank)
        assert kept is not None
        assert "in wait_for_the_file" in (kept.processes[0].stack or "")
    (nodes.paths.code / "go").touch()
    assert nodes.codes() == [0, 0]


def test_where_the_user_has_redirected_what_ranks_print_it_stays(start: Callable[..., Nodes], tmp_path: Path) -> None:
    nodes = start(before=("--redirects", "3", "--log-dir", str(tmp_path / "own")))
    assert nodes.codes() == [0, 0]
    assert [line for line in nodes.printed() if line.startswith("rank")] == []
    kept = "".join(file.read_text() for file in (tmp_path / "own").rglob("stdout.log"))
    assert sorted(line for line in kept.splitlines() if line.startswith("rank")) == [
        f"rank {rank} local {rank % 2} sum 4" for rank in range(4)
    ]


def _pids_seen(paths: RunPaths) -> dict[int, int]:
    samples = {rank: usage.newest(paths, rank) for rank in range(4)}
    return {rank: sample.pid for rank, sample in samples.items() if sample is not None}


def _processes(nodes: Nodes, rank: int) -> tuple[int, int]:
    """Return the process of a rank and that of its launcher."""
    line = next(line for line in nodes.printed_by(rank) if line.startswith("process"))
    return int(line.split()[1]), int(line.split()[3])
