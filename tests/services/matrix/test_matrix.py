"""Faults of a job, on every release of Slurm that can be had, with and without binding and accounting.

`make matrix` runs all of it and writes docs/slurm-matrix.md; the other targets run one column. Jobs are commands, so
that a column takes two minutes: what training adds is in tests/services/slurm.
"""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.services.matrix.conftest import CELL, ROW
from tests.support.hostile_texts import hostile
from tests.support.local_runs import Here, Run
from tests.support.slurm_jobs import POLL_S, Login, everything_printed, parsed
from tests.support.waiting import until
from trainjob.contract.paths import RunPaths
from trainjob.machines import process
from trainjob.rehearse.slurm import faults, releases
from trainjob.rehearse.slurm.description import description_of
from trainjob.rehearse.slurm.private import PrivateSlurm, private_slurm

pytestmark = pytest.mark.timeout(900)

LIMIT_S = 300.0
# Stays until it is told to go, and asks to come back; a later attempt ends at once.
STAYS = """
trap 'echo 5 >"$TRAINJOB_RUN_DIR/requeue"; exit 0' USR1 TERM
[ "$TRAINJOB_ATTEMPT" = 1 ] || exit 0
touch "$TRAINJOB_RUN_DIR/at-work-$RANK"
while :; do sleep 0.2; done
"""
# Asks to come back when its time is nearly up. Not in bash, which can't trap a signal that it starts with ignored.
HEARS_USR1 = """
import os, signal, sys, time
folder = os.environ["TRAINJOB_RUN_DIR"]

def come_back(*_):
    open(os.path.join(folder, "requeue"), "w").write("5")
    sys.exit(0)

signal.signal(signal.SIGUSR1, come_back)
if os.environ["TRAINJOB_ATTEMPT"] != "1":
    sys.exit(0)
open(os.path.join(folder, "at-work-" + os.environ["RANK"]), "w").close()
while True:
    time.sleep(0.2)
"""
TELLS = """
import json, os, sys
with open(os.path.join(os.environ["TRAINJOB_RUN_DIR"], "told-" + os.environ["RANK"]), "w", encoding="utf-8") as stream:
    json.dump({"arguments": sys.argv[1:], "slurm": sorted(n for n in os.environ if n.startswith("SLURM_")),
               "cpus": sorted(os.sched_getaffinity(0)), "threads": os.environ.get("OMP_NUM_THREADS")}, stream)
"""


@dataclass(frozen=True)
class Cell:
    """One site."""

    release: str
    task_plugin: str
    accounting: bool

    def __str__(self) -> str:
        return f"{self.release} {self.task_plugin}{' + accounting' if self.accounting else ''}"


# Debian's slurmdbd does not start with the MariaDB client of trixie and sid: see the page's title.
CELLS = [
    Cell(*values)
    for values in itertools.product(releases.SUITES, ("none", "affinity"), (False, True))
    if values[0] not in ("24.11", "26.05") or not values[2]
]
# Of rows that tests/services/slurm shows on the installed release as well.
IN_FULL = pytest.mark.full
QUICK = Cell("24.11", "affinity", accounting=False)


@pytest.fixture(
    scope="module",
    params=[pytest.param(one, marks=() if one == QUICK else pytest.mark.full, id=str(one)) for one in CELLS],
)
def cell(request: pytest.FixtureRequest) -> Cell:
    chosen: Cell = request.param
    return chosen


@pytest.fixture(scope="module")
def slurm(cell: Cell, needs: Callable[[str], Path]) -> Iterator[PrivateSlurm]:
    needs("slurm releases")
    twin = description_of(parsed(site(cell)), nodes_needed=2, release=cell.release, accounting=cell.accounting)
    assert twin.task_plugin == cell.task_plugin
    with private_slurm(twin) as made:
        made.set_job_environment(
            {"TRAINJOB_PYTHON": sys.executable, "TRAINJOB_PROLOGUE": "skip", "PATH": process.search_path()}
        )
        yield made


def site(cell: Cell) -> dict[str, object]:
    # No more CPUs than the smallest machine that runs these tests: task/affinity binds to real ones.
    return {
        "kind": "slurm",
        "nodes": {"count": 3, "cpus": 2},
        "runs_dir": "/shared/runs",
        "time_limit": "00:30:00",
        "directives": {"account": "abc"} if cell.accounting else {},
        "slurm": {"version": cell.release, "task_plugin": cell.task_plugin, "accounting": cell.accounting},
    }


@dataclass
class Site:
    """A user at one site."""

    login: Login
    slurm: PrivateSlurm
    cell: Cell

    def render(self, *words: str) -> Run:
        return self.login.render("--instances", "2", "--hosts", "2", *words)

    def sbatch(self, run: Run, *options: str, before: tuple[str, ...] = ()) -> str:
        sent = self.slurm.run([*before, "sbatch", "--parsable", *options, "job.sbatch"], folder=run.folder)
        return sent.text.split()[-1].split(";")[0]

    def at_work(self, script: str = STAYS, program: str = "bash") -> tuple[Run, str]:
        """Return a run whose two ranks are at work, and its job."""
        run = self.render("--", program, "-c", script)
        job = self.sbatch(run)
        both = [run.folder / f"at-work-{rank}" for rank in (0, 1)]
        until(lambda: all(path.exists() for path in both), f"two ranks\n{everything_printed(run)}", LIMIT_S)
        return run, job

    def settle(self, run: Run) -> None:
        """Return when nothing runs or waits; a requeued job need not wait its two minutes."""
        try:
            until(lambda: not self.login.queue(), "all jobs to end", LIMIT_S, POLL_S)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.output(run)}") from error

    def end(self, run: Run) -> tuple[str, str]:
        """Return the state in which the run has ended, and in which attempt."""
        self.settle(run)
        return run.word("state"), run.word("attempt")

    def output(self, run: Run) -> str:
        return f"{everything_printed(run)}\n{self.slurm.logs()}"


@pytest.fixture
def user(slurm: PrivateSlurm, cell: Cell, here: Here, request: pytest.FixtureRequest) -> Site:
    name = request.node.name.partition("[")[0].removeprefix("test_").replace("_", " ")
    request.node.user_properties += [(CELL, str(cell)), (ROW, name)]
    login = Login(here, slurm)
    (here.project / "clusters" / "hpc.yaml").write_text(json.dumps(site(cell)))
    return Site(login, slurm, cell)


def test_a_job_that_asks_to_come_back_does(user: Site) -> None:
    leaves = '[ "$TRAINJOB_ATTEMPT" != 1 ] || echo 5 >"$TRAINJOB_RUN_DIR/requeue"'
    run = user.render("--", "bash", "-c", leaves)
    user.sbatch(run)
    assert user.end(run) == ("COMPLETED", "2"), user.output(run)


def test_a_job_requeued_by_hand_comes_back(user: Site) -> None:
    run, job = user.at_work()
    user.slurm.run(["scontrol", "requeue", job])
    assert user.end(run) == ("COMPLETED", "2"), user.output(run)


def test_a_preempted_job_comes_back(user: Site) -> None:
    run, _ = user.at_work()
    faults.preempt(user.slurm)
    assert user.end(run) == ("COMPLETED", "2"), user.output(run)


def test_a_cancelled_job_stays_cancelled(user: Site) -> None:
    run, job = user.at_work()
    user.slurm.run(["scancel", job])
    assert user.end(run) == ("CANCELLED", "1"), user.output(run)


@IN_FULL
def test_a_killed_rank_is_named(user: Site) -> None:
    # The other rank is told to end, and must not ask to come back.
    run, _ = user.at_work('touch "$TRAINJOB_RUN_DIR/at-work-$RANK"; exec sleep 600')
    faults.kill_rank(RunPaths(run.folder), 1)
    assert user.end(run) == ("FAILED", "1"), user.output(run)
    failure = json.loads((run.folder / "failure.json").read_text())
    assert (failure["rank"], failure["exit_code"]) == (1, 137)


def test_elements_of_an_array_are_runs_of_their_own(user: Site) -> None:
    run = user.render("--array", "0-1", "--", "bash", "-c", 'exit "$SLURM_ARRAY_TASK_ID"')
    user.sbatch(run)
    user.settle(run)
    states = [(run.folder / "tasks" / element / "state").read_text().strip() for element in ("0", "1")]
    assert states == ["COMPLETED", "FAILED"], everything_printed(run)


@IN_FULL
def test_elements_of_a_sweep_have_values_of_their_own(user: Site) -> None:
    user.login.here.write("sweep.yaml", json.dumps([{"arguments": ["a b"]}, {"arguments": ["$c"]}]))
    user.login.here.write("tells.py", TELLS)
    run = user.render("--sweep", "sweep.yaml", "--", "python", str(user.login.here.project / "tells.py"))
    user.sbatch(run)
    user.settle(run)
    reported = [json.loads((run.folder / "tasks" / element / "told-1").read_text()) for element in ("0", "1")]
    assert [one["arguments"] for one in reported] == [["a b"], ["$c"]]


@IN_FULL
def test_a_job_waits_for_the_one_before_it(user: Site) -> None:
    first = user.render("--", "sleep", "2")
    second = user.render("--", "test", "-e", str(first.folder / "exit_code"))
    user.sbatch(second, f"--dependency=afterok:{user.sbatch(first)}")
    assert user.end(second) == ("COMPLETED", "1"), user.output(second)


@IN_FULL
def test_two_hundred_hostile_words_arrive(user: Site) -> None:
    words = hostile(200)
    run = user.render("--", sys.executable, "-c", TELLS, *words)
    user.sbatch(run)
    assert user.end(run) == ("COMPLETED", "1"), user.output(run)
    assert [json.loads((run.folder / f"told-{rank}").read_text())["arguments"] for rank in (0, 1)] == [words] * 2


def test_a_job_from_inside_another_is_the_same(user: Site) -> None:
    before = ("salloc", "--quiet", *_account(user.cell), "--nodes=1", "--ntasks=1", "srun", "--ntasks=1")
    reported = []
    for words in ((), before):
        run = user.render("--", sys.executable, "-c", TELLS)
        user.sbatch(run, before=words)
        assert user.end(run) == ("COMPLETED", "1"), user.output(run)
        reported.append([json.loads((run.folder / f"told-{rank}").read_text()) for rank in (0, 1)])
    assert reported[0] == reported[1]
    assert {one["threads"] for one in reported[0]} == {"2"}


def _account(cell: Cell) -> tuple[str, ...]:
    return ("--account=abc",) if cell.accounting else ()


@pytest.mark.full
def test_a_job_whose_time_is_up_comes_back(user: Site) -> None:
    run, job = user.at_work(HEARS_USR1, sys.executable)
    faults.let_time_run_out(user.slurm, job)
    assert user.end(run) == ("COMPLETED", "2"), user.output(run)


def test_a_job_that_lost_a_node_comes_back(user: Site) -> None:
    run, job = user.at_work()
    nodes = user.slurm.run(["squeue", "--noheader", f"--jobs={job}", "--format=%N"]).text.strip()
    last = user.slurm.run(["scontrol", "show", "hostnames", nodes]).text.split()[-1]
    faults.kill_daemon(user.slurm, last)
    faults.give_up(user.slurm, last)
    assert user.end(run) == ("COMPLETED", "2"), user.output(run)
