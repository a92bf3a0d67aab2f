"""What befalls a job under a real Slurm, and how it goes on: its last parameters are those of a run left alone.

Every row is a real Slurm doing the real thing: real limits (whole minutes, so those rows run side by side), real
preemption, real dead daemons. The two minutes that a requeued job waits are cut by the administrator's command.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from local_runs import Here, Run
from slurm_jobs import ONE_RANK_NODES, Login, cluster_file, everything_said, largest_difference, parameters, parsed
from waiting import until

from trainjob.contract.paths import RunPaths
from trainjob.rehearse.slurm import faults
from trainjob.rehearse.slurm.description import Description, twin_of
from trainjob.rehearse.slurm.private import PrivateSlurm, private_slurm

pytestmark = pytest.mark.timeout(1500)

LIMIT_S = 900.0
UPDATES = 600
# One thread a rank, everywhere: the same sums, to the last bit.
JOB = ("--task", "slow_task:Slow", "--instances", "2", "--samples", "256", "--updates", str(UPDATES))
JOB = (*JOB, "--micro-batch", "4", "--seed", "7", "--env", "OMP_NUM_THREADS=1")
TWO_NODES = ("--hosts", "2", "--env", "PAUSE_S=0.6")
SLOW_TASK = Path(__file__).with_name("slow_task.py")


@dataclass
class Watched:
    """A job and its folder."""

    login: Login
    run: Run
    job: str
    name: str

    @property
    def paths(self) -> RunPaths:
        return RunPaths(self.run.folder)

    def update(self) -> int:
        path = self.run.folder / "progress.json"
        found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
        return int(found.get("update", 0))

    def wait_until_at_work(self) -> None:
        until(lambda: self.update() >= 2, f"job {self.job} to train\n{everything_said(self.run)}", LIMIT_S)

    def wait_until_over(self) -> None:
        """Return when Slurm knows the job, or one that follows it, no more; requeued jobs need not wait."""
        deadline, quiet, helped = time.monotonic() + LIMIT_S, 0, ""
        while quiet < 5:
            waiting = self._waiting()
            quiet = 0 if waiting else quiet + 1
            if "BeginTime" in waiting and self.run.word("attempt") != helped:
                faults.start_soon(self.login.slurm, self.job)
                helped = self.run.word("attempt")
            assert time.monotonic() < deadline, everything_said(self.run)
            time.sleep(0.2)

    def _waiting(self) -> str:
        return self.login.slurm.run(["squeue", "--noheader", f"--name={self.name}", "--format=%T %r"]).text

    def check_equal_to(self, alone: Run, attempts: int = 2) -> None:
        assert self.run.word("state") == "COMPLETED", everything_said(self.run)
        # On a busy machine the second attempt may meet the time limit, too.
        assert int(self.run.word("attempt")) >= attempts, everything_said(self.run)
        assert parameters(self.run)["update"] == UPDATES
        assert largest_difference(parameters(self.run), parameters(alone)) == 0


def user(folder: Path) -> Here:
    here = Here(folder)
    here.write("slow_task.py", SLOW_TASK.read_text())
    return here


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """Return the run that nothing has befallen."""
    here = user(tmp_path_factory.mktemp("alone"))
    yield here.at(here.json("submit", "--cluster", "local", *JOB, "--follow")["folder"])
    here.end_everything()


def begin(login: Login, *options: str, cluster: str = "hpc") -> Watched:
    # Jobs, and those that follow them, are told apart by name.
    name = f"run-{login.rendered + 1}"
    run = login.render(*JOB, *TWO_NODES, "--name", name, cluster=cluster)
    return Watched(login, run, login.sbatch(run, *options), name)


def settings(**values: Any) -> dict[str, Any]:
    return cluster_file(nodes=ONE_RANK_NODES, **values)


# -- rows whose time limit has to run out: side by side on one Slurm --------------------------------------------------

SOON = {"time_limit": "00:02:00", "nodes": ONE_RANK_NODES}
TO_STEPS = {**SOON, "time_limit_signal": {"to": "steps", "margin_s": 60}}
TO_BATCH = {**SOON, "time_limit_signal": {"to": "batch", "margin_s": 60}}
# Reads the options that job scripts give, and hands on what a clean environment lets through.
APPTAINER = """\
#!{python}
import os, sys
words = sys.argv[1:]
with open("{record}", "a") as record:
    record.write(" ".join(words) + "\\n")
assert words.pop(0) == "exec"
while words[0].startswith("--"):
    option = words.pop(0)
    value = words.pop(0) if option in ("--pwd", "--mount") else None
    if option == "--pwd":
        os.chdir(value)
assert words.pop(0) == "{image}"
mark = "APPTAINERENV_"
environ = dict((name[len(mark):], value) for name, value in os.environ.items() if name.startswith(mark))
os.execvpe(words[0], words, dict(environ, HOME=os.environ["HOME"], PATH=environ.get("PATH", os.defpath)))
"""


def stand_in(folder: Path) -> tuple[Path, dict[str, Any]]:
    """Return the folder of a recording apptainer that execs, and the cluster file's container."""
    program, image = folder / "bin" / "apptainer", folder / "image.sif"
    program.parent.mkdir()
    image.touch()
    program.write_text(APPTAINER.format(python=sys.executable, record=folder / "record", image=image))
    program.chmod(0o755)
    return program.parent, {"runtime": "apptainer", "image": str(image)}


@pytest.fixture(scope="module")
def limited(needs: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Watched]]:
    """Begin all at once, and yield the jobs by name."""
    needs("slurm")
    folder = tmp_path_factory.mktemp("limited")
    programs, container = stand_in(folder)
    with private_slurm(Description(nodes=10, gres="gpu", gres_count=1)) as slurm:
        login = Login(user(folder), slurm)
        login.cluster("steps", **TO_STEPS)
        login.cluster("batch", **TO_BATCH)
        login.cluster("contained", **TO_STEPS, container=container)
        jobs = {name: begin(login, cluster=name) for name in ("steps", "batch")}
        jobs["array"] = begin(login, "--array=0-1", cluster="steps")
        login.programs = programs
        yield {**jobs, "contained": begin(login, cluster="contained")}


@pytest.mark.parametrize("to", ["steps", "batch"])
def test_rows_1_and_2_time_limit(limited: dict[str, Watched], alone: Run, to: str) -> None:
    watched = limited[to]
    watched.wait_until_over()
    watched.check_equal_to(alone)
    assert f"#SBATCH --signal={'B:' if to == 'batch' else ''}USR1@60" in (watched.run.folder / "job.sbatch").read_text()


def test_row_9_time_limit_of_one_task_of_an_array(limited: dict[str, Watched], alone: Run) -> None:
    array = limited["array"]
    slow, other = (
        Watched(array.login, Run(array.run.here, array.run.folder / "tasks" / task), f"{array.job}_{task}", array.name)
        for task in ("0", "1")
    )
    slow.wait_until_over()
    slow.check_equal_to(alone)
    other.check_equal_to(alone, attempts=1)
    assert other.run.word("attempt") == "1"


def test_row_10_time_limit_inside_a_container(limited: dict[str, Watched], alone: Run) -> None:
    watched = limited["contained"]
    watched.wait_until_over()
    watched.check_equal_to(alone)
    record = (watched.login.here.folder / "record").read_text().splitlines()
    assert len(record) == 2 * int(watched.run.word("attempt"))
    assert all("-m trainjob.train.launch --launcher slurm" in line for line in record)


# -- rows that need a Slurm of their own -------------------------------------------------------------------------------


@pytest.fixture
def own_slurm(needs: Callable[[str], Path], tmp_path: Path) -> Iterator[Callable[..., Login]]:
    """Return what makes a login node of the twin of a cluster file; all are gone afterwards."""
    needs("slurm")
    opened = []

    def make(**values: Any) -> Login:
        context = private_slurm(twin_of(parsed(settings(**values)), nodes_needed=2))
        opened.append(context)
        return Login(user(tmp_path), context.__enter__(), nodes=ONE_RANK_NODES, **values)

    yield make
    for context in opened:
        context.__exit__(None, None, None)


def test_row_3_preempted_and_back(own_slurm: Callable[..., Login], alone: Run) -> None:
    watched = begin(own_slurm(preemption="requeue"))
    watched.wait_until_at_work()
    faults.preempt(watched.login.slurm)
    watched.wait_until_over()
    watched.check_equal_to(alone)


@pytest.mark.parametrize("to", ["steps", pytest.param("batch", marks=pytest.mark.full)])
def test_row_4_preempted_with_its_own_signal_and_back(own_slurm: Callable[..., Login], alone: Run, to: str) -> None:
    signal = {"to": to, "margin_s": 60}
    watched = begin(own_slurm(preemption="user-signal", time_limit_signal=signal))
    watched.wait_until_at_work()
    faults.preempt(watched.login.slurm)
    watched.wait_until_over()
    watched.check_equal_to(alone)


def test_preempted_where_that_cancels_leaves_a_checkpoint_and_says_so(own_slurm: Callable[..., Login]) -> None:
    watched = begin(own_slurm(preemption="cancel"))
    watched.wait_until_at_work()
    faults.preempt(watched.login.slurm)
    watched.wait_until_over()
    assert watched.run.word("state") in ("STOPPED", "CANCELLED"), everything_said(watched.run)
    assert watched.run.word("attempt") == "1"
    assert parameters(watched.run)["update"] >= 2
    assert "trainjob resume" in (watched.run.folder / "logs/scheduler.out").read_text()


def test_row_5_cancelled_stays_cancelled_with_a_checkpoint(own_slurm: Callable[..., Login]) -> None:
    watched = begin(own_slurm())
    watched.wait_until_at_work()
    watched.login.slurm.run(["scancel", watched.job])
    watched.wait_until_over()
    assert (watched.run.word("state"), watched.run.word("attempt")) == ("CANCELLED", "1"), everything_said(watched.run)
    assert parameters(watched.run)["update"] >= 2


def test_row_6_requeued_by_hand(own_slurm: Callable[..., Login], alone: Run) -> None:
    watched = begin(own_slurm())
    watched.wait_until_at_work()
    faults.requeue(watched.login.slurm, watched.job)
    watched.wait_until_over()
    watched.check_equal_to(alone)


@pytest.mark.parametrize("which", [0, -1])
def test_row_7_a_lost_node_whose_ranks_live_on_is_fenced(
    own_slurm: Callable[..., Login], alone: Run, which: int
) -> None:
    watched = begin(own_slurm())
    watched.wait_until_at_work()
    slurm = watched.login.slurm
    node = nodes_of(slurm, watched.job)[which]
    faults.kill_daemon(slurm, node)
    faults.give_up(slurm, node)
    watched.wait_until_over()
    watched.check_equal_to(alone)
    until(lambda: not faults.ranks_of(watched.paths), "the old attempt's ranks to end", LIMIT_S)
    attempts = [json.loads(line)["attempt"] for line in (watched.run.folder / "metrics.jsonl").read_text().splitlines()]
    assert attempts == sorted(attempts)


def nodes_of(slurm: PrivateSlurm, job: str) -> list[str]:
    listed = slurm.run(["squeue", "--noheader", f"--jobs={job}", "--format=%N"]).text.strip()
    return slurm.run(["scontrol", "show", "hostnames", listed]).text.split()


def test_row_8_a_killed_rank_is_named(own_slurm: Callable[..., Login]) -> None:
    watched = begin(own_slurm())
    watched.wait_until_at_work()
    faults.kill_rank(watched.paths, 1)
    watched.wait_until_over()
    failure = json.loads((watched.run.folder / "failure.json").read_text())
    assert (failure["rank"], failure["exit_code"]) == (1, 137)
    assert (watched.run.word("state"), watched.run.word("exit_code")) == ("FAILED", "137"), everything_said(watched.run)
