"""Jobs under a real Slurm: several nodes train as one process does, ranks have their devices, commands run, too."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.local_runs import TELL, Here, Run
from tests.support.slurm_jobs import (
    Login,
    everything_printed,
    largest_difference,
    parameters,
)
from trainjob.contract.paths import RunPaths
from trainjob.records import events
from trainjob.rehearse.slurm.private import PrivateSlurm

pytestmark = pytest.mark.timeout(900)

# Sums are in another order over ranks: float64 keeps a real mistake apart from that.
EXACT = ("--precision", "64.64", "--updates", "5", "--log-every", "1")


@pytest.fixture
def login(slurm: PrivateSlurm, here: Here) -> Login:
    return Login(here, slurm)


def _alone(here: Here, global_batch: int) -> Run:
    """Return the run of one process here, over the same global batch."""
    asked = (
        "submit",
        "--cluster",
        "local",
        "--instances",
        "1",
        "--global-batch",
        str(global_batch),
        *EXACT,
        "--follow",
    )
    return here.at(here.json(*asked)["folder"])


@pytest.mark.parametrize(("nodes", "each"), [(2, 2), pytest.param(4, 4, marks=pytest.mark.full)])
def test_nodes_of_several_ranks_train_as_one_process_does(login: Login, nodes: int, each: int) -> None:
    instances = nodes * each
    run = login.finished("--instances", str(instances), "--hosts", str(nodes), *EXACT)
    assert largest_difference(parameters(run), parameters(_alone(login.here, 4 * instances))) < 1e-12
    assert (run.word("exit_code"), run.word("attempt")) == ("0", "1")
    for rank in range(instances):
        head = run.log(rank).splitlines()[0]
        assert head.startswith(f"--- attempt 1 · rank {rank} of {instances} · node{rank // each + 1} · ")
    assert not (run.folder / "failure.json").exists()


def test_the_parts_of_a_start_add_up_to_its_whole(login: Login) -> None:
    run = login.finished("--instances", "2", "--hosts", "2", "--updates", "3")
    (one,) = login.here.json("report", str(run.folder))["startups"]
    began = events.attempts(events.read(RunPaths(run.folder)))[0].began_at
    whole_s = json.loads(run.word("progress.json"))["timed_since"] - began
    assert 0.95 * whole_s <= sum(one["parts"].values()) <= 1.02 * whole_s
    assert {"environment", "imports", "rendezvous", "data", "model", "first update"} <= set(one["parts"])


def test_ranks_of_two_nodes_run_in_the_environment_that_the_job_brings(login: Login, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv")], check=True)
    (tmp_path / "disk").mkdir()
    login.here.write("tell.py", "import sys\nprint(sys.prefix, flush=True)\n")
    stated = ("--environment", f"venv={tmp_path / 'venv'}", "--environment", f"folder={tmp_path / 'disk'}")
    words = ("--instances", "4", "--hosts", "2", *stated, "--", "python", "tell.py")
    run = login.finished(*words, TRAINJOB_PROLOGUE="")
    for rank in range(4):
        (prefix,) = (line for line in run.log(rank).splitlines() if line.startswith("/"))
        assert Path(prefix).is_relative_to(tmp_path / "disk"), everything_printed(run)


def test_on_as_many_nodes_as_slurm_gives_the_global_batch_stays(login: Login) -> None:
    drain = ["scontrol", "update", "NodeName=node4"]
    login.slurm.run_as_root([*drain, "State=DRAIN", "Reason=test"])
    try:
        run = login.finished("--instances", "4", "--hosts", "2-4", "--global-batch", "48", *EXACT)
    finally:
        login.slurm.run_as_root([*drain, "State=RESUME"])
    assert run.log(2).splitlines()[0].startswith("--- attempt 1 · rank 2 of 3 · node3 · ")
    assert largest_difference(parameters(run), parameters(_alone(login.here, 48))) < 1e-12


def test_a_command_has_its_ranks_environment_devices_and_folder(login: Login) -> None:
    login.here.write("my_script.py", TELL)
    run = login.finished(
        *("--instances", "8", "--env", "lower_case=a, b", "--", "python", "my_script.py", "two words", "")
    )
    for rank in range(8):
        reported = run.report(rank)
        environ = reported["environ"]
        names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "CUDA_VISIBLE_DEVICES", "lower_case")
        values = [str(rank), str(rank % 4), "8", "4", "0,1,2,3", "a, b"]
        assert [environ[name] for name in names] == values
        assert environ["MASTER_ADDR"] == run.report(0)["environ"]["MASTER_ADDR"]
        assert environ["MASTER_PORT"] == run.report(0)["environ"]["MASTER_PORT"]
        assert 20000 <= int(environ["MASTER_PORT"]) < 32768
        assert reported["arguments"] == ["two words", ""]
        assert reported["folder"] == str(run.folder / "code/project")


def test_each_rank_gets_its_own_of_the_devices_that_the_gres_made_visible(login: Login) -> None:
    login.here.write("my_script.py", TELL)
    run, job = login.submit("--instances", "4", "--hosts", "2", "--", "python", "my_script.py", TRAINJOB_DEVICE="")
    login.wait(job)
    assert run.word("state") == "COMPLETED", everything_printed(run)
    environs = [run.report(rank)["environ"] for rank in range(4)]
    assert [environ["CUDA_VISIBLE_DEVICES"] for environ in environs] == ["0,1"] * 4
    assert [environ["TRAINJOB_RANK_DEVICE"] for environ in environs] == ["cuda:0", "cuda:1"] * 2


def test_a_script_that_fails_gives_its_exit_code_and_its_rank(login: Login) -> None:
    login.here.write(
        "my_script.py", 'import os, sys, time\nif os.environ["RANK"] == "1": sys.exit(3)\ntime.sleep(600)\n'
    )
    run, job = login.submit("--instances", "4", "--hosts", "2", "--", "python", "my_script.py")
    login.wait(job)
    assert (run.word("state"), run.word("exit_code")) == ("FAILED", "3"), everything_printed(run)
    assert '"rank": 1' in run.word("failure.json")


STAY_A_WHILE = """\
import os, pathlib, sys, time
run = pathlib.Path(os.environ["TRAINJOB_RUN_DIR"])
(run / ("here-" + os.environ["RANK"])).write_text(os.environ["MASTER_PORT"])
other = run.parent / sys.argv[1]
while not (other / ("here-" + os.environ["RANK"])).exists():
    time.sleep(0.05)
"""


def test_two_runs_on_one_node_at_once_collide_nowhere(login: Login) -> None:
    login.cluster("shared", nodes={"count": 1, "cpus": 64}, directives={"cpus-per-task": 1, "mem": "1G"})
    login.here.write("my_script.py", STAY_A_WHILE)
    asked = ("--instances", "2", "--", "python", "my_script.py")
    first, second = (login.render(*asked, other, cluster="shared") for other in ("run-2", "run-1"))
    jobs = [login.sbatch(run, "--nodelist=node1") for run in (first, second)]
    for job in jobs:
        login.wait(job)
    # Each has waited for the other: they were on the node at the same time.
    assert [run.word("state") for run in (first, second)] == ["COMPLETED"] * 2, everything_printed(first)
    assert first.word("here-0") != second.word("here-0")


def test_two_trainings_on_one_node_at_once_collide_nowhere(login: Login) -> None:
    login.cluster("shared", nodes={"count": 1, "cpus": 64}, directives={"cpus-per-task": 1, "mem": "1G"})
    asked = ("--instances", "2", "--updates", "5")
    runs = [login.render(*asked, cluster="shared") for _ in range(2)]
    jobs = [login.sbatch(run, "--nodelist=node1") for run in runs]
    for job in jobs:
        login.wait(job)
    assert [run.word("state") for run in runs] == ["COMPLETED"] * 2, everything_printed(runs[0])
    assert largest_difference(*map(parameters, runs)) == 0


def test_the_script_runs_by_hand_from_a_copied_folder(login: Login, tmp_path: Path) -> None:
    run = login.render("--instances", "2", "--", "sh", "-c", "echo here > $TRAINJOB_RUN_DIR/said")
    copied = run.folder.with_name("copied by hand")
    run.folder.rename(copied)
    job = login.sbatch(Run(login.here, copied))
    login.wait(job)
    assert (copied / "said").read_text() == "here\n"
