"""Folders rendered for Slurm, handed to plain sbatch: arrays, follow-ups, bounds, and nodes that fail or see others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.local_runs import Here, Run
from tests.support.slurm_jobs import LIMIT_S, POLL_S, Login, everything_printed
from tests.support.waiting import until
from trainjob.rehearse.slurm import faults
from trainjob.rehearse.slurm.description import Description, SlurmPartition
from trainjob.rehearse.slurm.private import PrivateSlurm, private_slurm

pytestmark = pytest.mark.timeout(900)

# Leaves what a script leaves that has checkpointed on request.
LEAVES = "echo %s >$TRAINJOB_RUN_DIR/requeue"
CPUS = {"nodes": {"count": 2, "cpus": 4}}


@pytest.fixture(scope="module")
def slurm(needs: Callable[[str], Path]) -> Iterator[PrivateSlurm]:
    needs("slurm")
    with private_slurm(Description(nodes=2, partitions=(SlurmPartition("cpu"),))) as made:
        yield made


@pytest.fixture
def login(slurm: PrivateSlurm, here: Here) -> Login:
    return Login(here, slurm, **CPUS)


def wait_through_requeues(login: Login) -> None:
    """Return when nothing runs or waits."""
    until(lambda: not login.queue(), "all jobs to end", LIMIT_S, POLL_S)


def by_hand(login: Login, *words: str, sbatch: tuple[str, ...] = (), cluster: str = "hpc", **redirected: str) -> Run:
    run = login.render(*words, cluster=cluster)
    login.sbatch(run, *sbatch, **redirected)
    wait_through_requeues(login)
    return run


def scheduler_output(run: Run) -> str:
    return (run.folder / "logs/scheduler.out").read_text()


def test_each_task_of_an_array_has_its_own_run_and_is_requeued_alone(login: Login) -> None:
    first_of_task_1 = f'[ "$SLURM_ARRAY_TASK_ID$TRAINJOB_ATTEMPT" = 11 ] && {LEAVES % 5}; true'
    run = by_hand(login, "--", "bash", "-c", first_of_task_1, sbatch=("--array=0-2%2",))
    tasks = [Run(login.here, run.folder / "tasks" / str(task)) for task in (0, 1, 2)]
    assert [task.word("state") for task in tasks] == ["COMPLETED"] * 3, [everything_printed(task) for task in tasks]
    assert [task.word("attempt") for task in tasks] == ["1", "2", "1"]
    assert not (run.folder / "attempt").exists()


def test_a_follow_up_goes_on_where_requeueing_is_not_allowed(login: Login) -> None:
    login.cluster("strict", **CPUS, directives={"no-requeue": True})
    leaves_first = f'[ "$TRAINJOB_ATTEMPT" = 1 ] && {LEAVES % 5}; true'
    run = by_hand(login, "--", "bash", "-c", leaves_first, cluster="strict")
    assert (run.word("state"), run.word("attempt")) == ("COMPLETED", "2"), everything_printed(run)
    assert f"requeueing is not allowed here: job {run.word('job_id')} continues after this one" in scheduler_output(run)


def test_no_more_starts_than_asked_for(login: Login) -> None:
    leaves_always = LEAVES % "$TRAINJOB_ATTEMPT"
    run = by_hand(login, "--max-attempts", "2", "--", "bash", "-c", leaves_always)
    assert (run.word("state"), run.word("attempt")) == ("STOPPED", "2"), everything_printed(run)
    assert (
        "the last of 2 starts (max_attempts) has ended: trainjob resume continues from its checkpoint"
        in scheduler_output(run)
    )


def test_a_job_that_gets_nowhere_ends_with_the_reason(login: Login) -> None:
    run = by_hand(login, "--", "bash", "-c", LEAVES % 5)
    assert run.word("state") == "FAILED", everything_printed(run)
    assert "two attempts in a row got no further than 5: not started again" in scheduler_output(run)


def test_a_stop_that_was_asked_for_is_no_requeue(login: Login) -> None:
    run = login.render("--", "bash", "-c", f"touch $TRAINJOB_RUN_DIR/stop; {LEAVES % 5}")
    job = login.sbatch(run)
    wait_through_requeues(login)
    assert (run.word("state"), run.word("attempt")) == ("STOPPED", "1"), everything_printed(run)
    # What waits for this job by afterok must not start.
    assert " ExitCode=75:0" in login.slurm.run(["scontrol", "show", "job", "-o", job]).text


def test_a_node_that_sees_another_folder_is_named(login: Login, tmp_path: Path) -> None:
    # A node looks for the folder's word for a minute and a half: as often here, and in a hundredth of the time.
    sleep = tmp_path / "programs" / "sleep"
    sleep.parent.mkdir()
    sleep.write_text("#!/bin/sh\nexec /bin/sleep 0.01\n")
    sleep.chmod(0o755)
    prologue = [f"export PATH={sleep.parent}:$PATH", "printf 'another\\n' >.token"]
    login.cluster("unshared", **CPUS, prologue=prologue)
    run = by_hand(login, "--", "true", cluster="unshared", TRAINJOB_PROLOGUE="")
    assert run.word("state") == "FAILED", everything_printed(run)
    assert f"trainjob: node node1 does not see run directory {run.folder}: set runs_dir to" in scheduler_output(run)


def test_an_interface_that_is_not_there_is_named(login: Login) -> None:
    login.cluster("cabled", **CPUS, network={"interface": "ib7"})
    run = by_hand(login, "--", "true", cluster="cabled")
    assert run.word("state") == "FAILED", everything_printed(run)
    assert "trainjob: node node1 has no IPv4 address on network interface ib7" in scheduler_output(run)


# Listens where ranks were told to meet, until the other job is over.
HOLDS = """
import os, pathlib, socket, time
held = socket.create_server(("127.0.0.1", int(os.environ["MASTER_PORT"])))
run = pathlib.Path(os.environ["TRAINJOB_RUN_DIR"])
(run / "holds").write_text(os.environ["MASTER_PORT"])
while not (run / "go").exists():
    time.sleep(0.05)
"""


def test_a_port_that_was_asked_for_is_taken_and_in_use_it_is_named(login: Login) -> None:
    small = {"nodes": {"count": 2, "cpus": 4}, "directives": {"cpus-per-task": 1, "mem": "1G", "nodelist": "node1"}}
    login.cluster("ported", **small, network={"interface": "lo", "port": 23456})
    login.here.write("holds.py", HOLDS)
    first = login.render("--instances", "1", "--", "python", "holds.py", cluster="ported")
    login.sbatch(first)
    until(lambda: first.word("holds") == "23456", "the first job to hold its port", LIMIT_S)
    second = login.render("--instances", "1", "--", "true", cluster="ported")
    login.wait(login.sbatch(second))
    (first.folder / "go").touch()
    wait_through_requeues(login)
    assert second.word("state") == "FAILED", everything_printed(second)
    assert "trainjob: network.port 23456 is in use on node" in scheduler_output(second)
    assert "take it out of the cluster file and a free one is chosen" in scheduler_output(second)
    assert first.word("state") == "COMPLETED", everything_printed(first)


def test_a_folder_whose_path_slurm_would_misread_is_refused(login: Login) -> None:
    output = login.here.run("render", "--cluster", "hpc", "-o", "back\\slash", "--", "true", code=1).stderr
    assert "has a backslash in its path, which Slurm drops: choose another folder" in output
    assert not (login.here.project / "back\\slash").exists()


def test_run_as_an_ordinary_script_it_says_what_it_is_for(login: Login) -> None:
    run = login.render("--", "true")
    ended = login.slurm.run(["bash", "job.sbatch"], folder=run.folder, check=False)
    assert (ended.code, ended.stderr) == (1, "trainjob: this script is for Slurm; in its folder: sbatch job.sbatch\n")
    assert not (run.folder / "attempt").exists()


# -- a run continues without the node that failed it ------------------------------------------------------------------


def wait_until_complete(login: Login, run: Run) -> None:
    wait_through_requeues(login)
    assert (run.word("state"), run.word("attempt")) == ("COMPLETED", "2"), everything_printed(run)


def test_the_attempt_after_a_lost_device_runs_on_another_node(login: Login) -> None:
    # With a checkpoint there is something to continue from.
    fails = "mkdir -p $TRAINJOB_RUN_DIR/checkpoints/update-00000005; echo CUDA error: uncorrectable ECC error; exit 1"
    shows = "echo $SLURMD_NODENAME >>$TRAINJOB_RUN_DIR/ran; "
    run = login.render("--", "bash", "-c", f'{shows} if [ "$TRAINJOB_ATTEMPT" = 1 ]; then {fails}; fi')
    login.sbatch(run)
    wait_until_complete(login, run)
    first, second = (run.folder / "ran").read_text().split()
    assert first != second
    assert (run.word("excluded_nodes") or "").split("\t")[:2] == [first, "1"]


def test_a_node_that_does_not_pass_the_node_check_is_left_out_before_a_rank_has_begun(login: Login) -> None:
    no_data = 'if [ "$TRAINJOB_ATTEMPT" = 1 ]; then export TRAINJOB_DATA_DIR=/nowhere; fi'
    login.cluster("checked", **CPUS, node_check=True, prologue=[no_data])
    run = login.render("--", "bash", "-c", "echo $SLURMD_NODENAME >>$TRAINJOB_RUN_DIR/ran", cluster="checked")
    login.sbatch(run, TRAINJOB_PROLOGUE="")
    wait_until_complete(login, run)
    second = (run.folder / "ran").read_text().strip()
    [(first, attempt, why)] = [line.split("\t") for line in (run.word("excluded_nodes") or "").splitlines()]
    assert (attempt, {first, second}) == ("1", {"node1", "node2"})
    assert "did not pass the node check: the data folder /nowhere can't be read" in why


def test_a_follow_up_continues_a_run_whose_first_node_died(login: Login) -> None:
    """The last of this file: the Slurm that its tests share has one node less afterwards."""
    login.cluster("strict", **CPUS, directives={"no-requeue": True}, queue_follow_up=True)
    run = login.render("--", "bash", "-c", 'if [ "$TRAINJOB_ATTEMPT" = 1 ]; then sleep 600; fi', cluster="strict")
    login.sbatch(run)
    until(lambda: (run.folder / "logs/rank-0000.log").exists(), "the rank to start", LIMIT_S)
    node = run.word(".nodes")
    assert node
    follow_up = run.word(".follow_up")
    faults.kill_daemon(login.slurm, node)
    faults.give_up(login.slurm, node)
    wait_until_complete(login, run)
    assert run.word("job_id") == follow_up
    assert (run.word("excluded_nodes") or "").split("\t")[::2] == [node, "failed"]
    assert follow_up
