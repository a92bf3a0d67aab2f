"""The horovod engine under a real mpirun with the real Horovod: equal to one instance, and nothing left behind."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.local_runs import Here, Run, command_of, kill, oldest_first
from tests.support.verdicts import verify, verify_task
from tests.support.waiting import until

pytestmark = pytest.mark.timeout(600)
_LIMIT_S = 240.0
# Never done by itself: the tests below end it.
_LONG = ("--updates", "1000000", "--checkpoint-every", "50")


@pytest.fixture
def hvd(here: Here, needs: Callable[[str], Path]) -> Here:
    """A machine whose cluster file `hvd` names an interpreter with Horovod."""
    here.cluster("hvd", f"python: {needs('horovod')}\n")
    return here


def submitted(here: Here, *words: str, instances: int = 2) -> Run:
    asked = ("-c", "hvd", "--engine", "horovod", "--instances", str(instances))
    return here.at(here.json("submit", "--again", *asked, *words)["folder"])


def training(here: Here) -> Run:
    """Return a run that is in the middle of its training."""
    run = submitted(here, *_LONG)
    until(lambda: list((run.folder / "checkpoints").glob("update-*")), "a checkpoint", _LIMIT_S)
    return run


def wait(run: Run, state: str) -> None:
    until(lambda: run.word("state") == state, f"{run.id} {state}", _LIMIT_S)
    until(lambda: not run.processes(), f"{run.id} gone", _LIMIT_S)


def pids(run: Run, program: str) -> list[int]:
    """Return the run's processes that have `program` among their words, oldest first."""
    words = {pid: [os.path.basename(word) for word in command_of(pid)[:3]] for pid in run.processes()}
    return oldest_first(pid for pid in words if program in words[pid])


def test_two_instances_train_as_one_with_accumulation_clipping_and_a_sum(hvd: Here) -> None:
    asked = ("-c", "hvd", "--engine", "horovod", "--instances", "2", "--accumulation", "2", "--clip-norm", "0.5")
    verdict = verify_task(hvd, "Right", *asked, "--micro-batch", "2", "--reduction", "sum", limit_s=_LIMIT_S)
    assert verdict["equal"]
    assert verdict["engine"] == "horovod"


@pytest.mark.full
def test_four_instances_train_as_one_with_adamw(hvd: Here) -> None:
    asked = ("-c", "hvd", "--engine", "horovod", "--instances", "4", "--updates", "2", "--optimizer", "adamw")
    assert verify(hvd, *asked, limit_s=_LIMIT_S)["equal"]


@pytest.mark.full
def test_an_interrupted_run_goes_on_within_the_tolerance(hvd: Here) -> None:
    asked = ("-c", "hvd", "--engine", "horovod", "--resume", "--updates", "100", "--interruptions", "1")
    verdict = verify(hvd, *asked, limit_s=500)
    assert verdict["equal"]
    assert not verdict["bitwise"]


def test_a_world_of_one_needs_no_collective(hvd: Here) -> None:
    run = submitted(hvd, "--updates", "3", instances=1)
    wait(run, "COMPLETED")
    assert [run.status()[key] for key in ("update", "exit_code")] == [3, 0]


def test_a_signal_stops_all_ranks_after_a_checkpoint_and_the_run_goes_on(hvd: Here) -> None:
    run = training(hvd)
    os.kill(run.script, signal.SIGUSR1)
    wait(run, "STOPPED")
    assert (run.word("exit_code"), run.status()["failure"]) == ("75", None)
    stopped = int(run.word("requeue"))
    hvd.run("resume", run.id)
    until(lambda: f"from the checkpoint of update {stopped}" in run.log(0), "resumed", _LIMIT_S)
    hvd.run("cancel", run.id)
    wait(run, "CANCELLED")


def test_cancel_lets_the_ranks_checkpoint_and_ends_everything(hvd: Here) -> None:
    run = training(hvd)
    hvd.run("cancel", run.id)
    assert not run.processes()
    assert run.word("state") == "CANCELLED"
    assert "its checkpoint is written" in run.log(0)


@pytest.mark.parametrize("rank", [pytest.param(0, marks=pytest.mark.full), 1])
def test_a_killed_rank_fails_the_run_and_is_named(hvd: Here, rank: int) -> None:
    run = training(hvd)
    ranks = [pid for pid in pids(run, "trainjob.train") if f"RANK={rank}" in environment(pid)]
    os.kill(ranks[0], signal.SIGKILL)
    wait(run, "FAILED")
    failed = run.status()["failure"]
    assert (failed["rank"], failed["exit_code"]) == (rank, 137)


def environment(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/environ").read_text(errors="replace").split("\0")


@pytest.mark.parametrize(
    "program",
    [
        pytest.param("job.sh", marks=pytest.mark.full),
        pytest.param("trainjob.launch.ranks.starter", marks=pytest.mark.full),
        "mpirun",
        "trainjob.launch",
    ],
)
def test_a_kill_of_what_stands_above_the_ranks_leaves_nothing(hvd: Here, program: str) -> None:
    run = training(hvd)
    kill(pids(run, program))
    # Only the script writes how a run ended.
    expected = "LOST" if program == "job.sh" else "FAILED"
    until(lambda: run.status()["state"] == expected, expected, _LIMIT_S)
    until(lambda: not run.processes(), "gone", _LIMIT_S)
    assert run.status()["state"] == expected


def test_a_rank_that_fails_by_itself_is_named_and_not_the_one_that_waits_for_it(hvd: Here) -> None:
    hvd.write("mine.py", _FAILING)
    run = submitted(hvd, "--task", "mine:Failing", "--samples", "64", "--micro-batch", "4", "--updates", "4")
    wait(run, "FAILED")
    failed = run.status()["failure"]
    assert failed["rank"] == 1
    assert any("this rank has had enough" in line for line in failed["tail"])


_FAILING = """\
import os
import torch
from torch import nn


class Failing:
    def build_model(self):
        return nn.Linear(2, 2)

    def open_data(self, place):
        return torch.utils.data.TensorDataset(torch.ones(64, 2), torch.zeros(64, dtype=torch.long))

    calls = 0

    def loss(self, outputs, targets):
        self.calls += 1
        if self.calls > 3 and os.environ["RANK"] == "1":
            raise RuntimeError("this rank has had enough")
        return nn.functional.cross_entropy(outputs, targets)

    def metrics(self, outputs, targets):
        return {}
"""


def test_the_hanging_rank_is_named(hvd: Here) -> None:
    hvd.write(
        "mine.py", _FAILING.replace('raise RuntimeError("this rank has had enough")', "import time; time.sleep(900)")
    )
    words = ("--task", "mine:Failing", "--samples", "64", "--micro-batch", "4", "--updates", "4")
    run = submitted(hvd, *words, "--stall-timeout-s", "30")
    wait(run, "FAILED")
    assert "rank 1 has been computing update" in "".join(run.status()["failure"]["tail"])


def test_what_the_engine_needs_is_asked_for_before_anything_runs(here: Here) -> None:
    output = here.json("check", "--engine", "horovod", "--instances", "2", code=1)
    assert [problem["code"] for problem in output["problems"]] == ["horovod"]
    assert "has no Horovod built for torch" in here.run("verify", "--engine", "horovod", code=1).stderr
