"""Faults of a job under a real Slurm, and how it continues: its last parameters are those of a run left alone.

Every row is a real Slurm doing the real thing: real limits (whole minutes, which run out while other tests run), real
preemption, real dead daemons. The two minutes that a requeued job waits are cut by the administrator's command.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support import SUPPORT
from tests.support.local_runs import Here, Run
from tests.support.slurm_jobs import (
    ONE_RANK_NODES,
    POLL_S,
    Login,
    cluster_file,
    everything_printed,
    largest_difference,
    parameters,
    parsed,
)
from tests.support.waiting import until
from trainjob.contract.paths import RunPaths
from trainjob.observe.report.report import report
from trainjob.records import events
from trainjob.records import submission as submissions
from trainjob.rehearse.slurm import faults
from trainjob.rehearse.slurm.description import PREEMPTING_PARTITION, description_of
from trainjob.rehearse.slurm.private import PrivateSlurm, private_slurm

pytestmark = pytest.mark.timeout(1500)

LIMIT_S = 900.0
UPDATES = 600
# One thread a rank, everywhere: the same sums, to the last bit.
JOB: tuple[str, ...] = ("--task", "slow_task:Slow", "--instances", "2", "--samples", "256", "--updates", str(UPDATES))
JOB += ("--micro-batch", "4", "--seed", "7", "--env", "OMP_NUM_THREADS=1")
# Stays at work until its turn has come.
TWO_NODES = ("--hosts", "2", "--env", "PAUSE_S=1.5")
SLOW_TASK = SUPPORT / "slow_task.py"


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
        self._wait(lambda: self.update() >= 2, "train")

    def wait_until_over(self) -> None:
        """Return when Slurm knows the job, or one that follows it, no more."""
        self._wait(lambda: self.name not in self.login.queue(), "end")

    def _wait(self, holds: Callable[[], bool], what: str) -> None:
        try:
            until(holds, f"job {self.job} ({self.name}) to {what}", LIMIT_S, POLL_S)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{everything_printed(self.run)}") from error

    def check_equal_to(self, alone: Run, attempts: int = 2) -> None:
        assert self.run.word("state") == "COMPLETED", everything_printed(self.run)
        # On a busy machine the second attempt may meet the time limit, too.
        assert int(self.run.word("attempt")) >= attempts, everything_printed(self.run)
        assert parameters(self.run)["update"] == UPDATES
        assert largest_difference(parameters(self.run), parameters(alone)) == 0
        goodput = report(self.paths, submissions.read(self.paths)).goodput
        assert goodput is not None
        assert goodput.share is not None
        assert 0 < goodput.share < 1
        assert goodput.start_up_s > 0
        numbers = [attempt.number for attempt in events.attempts(events.read(self.paths))]
        assert numbers == list(range(1, int(self.run.word("attempt")) + 1))


def user(folder: Path) -> Here:
    here = Here(folder)
    here.patience_s = LIMIT_S
    here.write("slow_task.py", SLOW_TASK.read_text())
    return here


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """Return the run without a fault."""
    here = user(tmp_path_factory.mktemp("alone"))
    yield here.at(here.json("submit", "--cluster", "local", *JOB, "--follow")["folder"])
    here.end_everything()


def begin(login: Login, name: str, *options: str, cluster: str) -> Watched:
    """Begin a job; it, and those that follow it, are told from others by its name."""
    run = login.render(*JOB, *TWO_NODES, "--name", name, cluster=cluster)
    return Watched(login, run, login.sbatch(run, *options), name)


def settings(**values: Any) -> dict[str, Any]:
    return cluster_file(nodes=ONE_RANK_NODES, **values)


# -- one Slurm for all that can share it ------------------------------------------------------------------------------

SOON = {"time_limit": "00:02:00", "nodes": ONE_RANK_NODES}
TO_STEPS = {**SOON, "time_limit_signal": {"to": "steps", "margin_s": 60}}
TO_BATCH = {**SOON, "time_limit_signal": {"to": "batch", "margin_s": 60}}
CANCELS = "cancels"  # a partition whose preempted jobs are cancelled
IN_TURN = ("preempted", "cancelled", "requeued", "last-node")
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
def login(needs: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Login]:
    """Yield the login node of one Slurm with a node for each rank of all jobs, and a spare one."""
    needs("slurm")
    twin = description_of(parsed(settings(preemption="requeue")), nodes_needed=2)
    cancels = dataclasses.replace(twin.partitions[0], name=CANCELS, preempt_mode="CANCEL")
    with private_slurm(
        dataclasses.replace(
            twin,
            groups=(dataclasses.replace(twin.groups[0], count=23),),
            daemons=None,
            partitions=(*twin.partitions, cancels),
        )
    ) as slurm:
        login = Login(user(tmp_path_factory.mktemp("user")), slurm, nodes=ONE_RANK_NODES)
        login.cluster("steps", **TO_STEPS)
        login.cluster("batch", **TO_BATCH)
        login.cluster(CANCELS, nodes=ONE_RANK_NODES, preemption="cancel", directives={"partition": CANCELS})
        yield login


@pytest.fixture(scope="module")
def limited(login: Login) -> dict[str, Watched]:
    """Begin the jobs whose time runs out, and return them by name when they train."""
    programs, container = stand_in(login.here.folder)
    login.cluster("contained", **TO_STEPS, container=container)
    begun = {name: begin(login, name, cluster=name) for name in ("steps", "batch")}
    begun["array"] = begin(login, "array", "--array=0-1", cluster="steps")
    login.programs = programs
    begun["contained"] = begin(login, "contained", cluster="contained")
    login.programs = None
    # Their minutes must not run out while the ranks of others take the cores.
    for name in ("steps", "batch", "contained"):
        begun[name].wait_until_at_work()
    return begun


@pytest.fixture(scope="module")
def jobs(login: Login, limited: dict[str, Watched]) -> dict[str, Watched]:
    """Begin the jobs that meet faults, one after the other, and return them by name."""
    begun = {name: begin(login, name, cluster="hpc") for name in IN_TURN}
    return {**begun, CANCELS: begin(login, CANCELS, cluster=CANCELS)}


def preempt(watched: Watched) -> None:
    """Have a more urgent job take the nodes of this one."""
    slurm = watched.login.slurm
    urgent = [f"--partition={PREEMPTING_PARTITION}", "--exclusive", "--time=1", "--output=/dev/null", "--wrap=sleep 5"]
    slurm.run_as_root(["sbatch", f"--nodelist={','.join(nodes_of(slurm, watched.job))}", *urgent])


def nodes_of(slurm: PrivateSlurm, job: str) -> list[str]:
    listed = slurm.run(["squeue", "--noheader", f"--jobs={job}", "--format=%N"]).text.strip()
    return slurm.run(["scontrol", "show", "hostnames", listed]).text.split()


def test_row_3_preempted_and_back(jobs: dict[str, Watched], alone: Run) -> None:
    watched = jobs["preempted"]
    watched.wait_until_at_work()
    preempt(watched)
    watched.wait_until_over()
    watched.check_equal_to(alone)


def test_preempted_where_that_cancels_is_continued_by_a_follow_up_job(jobs: dict[str, Watched], alone: Run) -> None:
    watched = jobs[CANCELS]
    watched.wait_until_at_work()
    preempt(watched)
    watched.wait_until_over()
    watched.check_equal_to(alone)
    assert "preempted by Slurm" in (watched.run.folder / "logs/scheduler.out").read_text()


def test_row_5_cancelled_stays_cancelled_with_a_checkpoint(jobs: dict[str, Watched]) -> None:
    watched = jobs["cancelled"]
    watched.wait_until_at_work()
    watched.login.slurm.run(["scancel", watched.job])
    watched.wait_until_over()
    assert (watched.run.word("state"), watched.run.word("attempt")) == ("CANCELLED", "1"), everything_printed(
        watched.run
    )
    assert parameters(watched.run)["update"] >= 2


def test_row_6_requeued_by_hand(jobs: dict[str, Watched], alone: Run) -> None:
    watched = jobs["requeued"]
    watched.wait_until_at_work()
    watched.login.slurm.run(["scontrol", "requeue", watched.job])
    watched.wait_until_over()
    watched.check_equal_to(alone)


@pytest.mark.parametrize("which", [pytest.param("first-node", marks=pytest.mark.full), "last-node"])
def test_row_7_a_lost_node_whose_ranks_live_on_is_fenced(
    jobs: dict[str, Watched], login: Login, alone: Run, which: str
) -> None:
    watched = jobs.get(which) or begin(login, which, cluster="hpc")
    watched.wait_until_at_work()
    slurm = watched.login.slurm
    node = nodes_of(slurm, watched.job)[0 if which == "first-node" else -1]
    faults.kill_daemon(slurm, node)
    faults.give_up(slurm, node)
    watched.wait_until_over()
    watched.check_equal_to(alone)
    until(lambda: not faults.ranks_of(watched.paths), "the old attempt's ranks to end", LIMIT_S)
    attempts = [json.loads(line)["attempt"] for line in (watched.run.folder / "metrics.jsonl").read_text().splitlines()]
    assert attempts == sorted(attempts)


# -- a row that needs a Slurm of its own: whether the job's signal is sent holds for all of it -------------------------


@pytest.mark.parametrize("to", ["steps", pytest.param("batch", marks=pytest.mark.full)])
def test_row_4_preempted_with_its_own_signal_and_back(
    needs: Callable[[str], Path], tmp_path: Path, alone: Run, to: str
) -> None:
    needs("slurm")
    values = settings(preemption="user-signal", time_limit_signal={"to": to, "margin_s": 60})
    with private_slurm(description_of(parsed(values), nodes_needed=2)) as slurm:
        login = Login(user(tmp_path), slurm, **values)
        watched = begin(login, "signalled", cluster="hpc")
        watched.wait_until_at_work()
        faults.preempt(slurm)
        watched.wait_until_over()
        watched.check_equal_to(alone)


# -- rows whose time limit runs out while the tests above run ----------------------------------------------------------


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
    assert all("-m trainjob.launch --launcher slurm" in line for line in record)
    assert events.image(events.read(RunPaths(watched.run.folder))) == f"sha256:{hashlib.sha256(b'').hexdigest()}"
