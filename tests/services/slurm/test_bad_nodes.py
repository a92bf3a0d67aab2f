"""A run continues without the node that failed it, whether or not Slurm starts the job again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.local_runs import Here, Run
from tests.support.slurm_jobs import LIMIT_S, POLL_S, Login, everything_said
from tests.support.waiting import until
from trainjob.rehearse.slurm import faults
from trainjob.rehearse.slurm.description import Description, Partition
from trainjob.rehearse.slurm.private import PrivateSlurm, private_slurm

pytestmark = pytest.mark.timeout(900)

NODES = {"nodes": {"count": 2, "cpus": 4}}


@pytest.fixture
def slurm(needs: Callable[[str], Path]) -> Iterator[PrivateSlurm]:
    needs("slurm")
    with private_slurm(Description(nodes=2, partitions=(Partition("cpu"),))) as made:
        yield made


@pytest.fixture
def login(slurm: PrivateSlurm, here: Here) -> Login:
    return Login(here, slurm, **NODES)


def first_attempt(run: Run) -> str:
    """Return the node of a run's first attempt, which works."""
    until(lambda: (run.folder / "logs/rank-0000.log").exists(), "the rank to start", LIMIT_S)
    return run.word(".nodes") or ""


def wait_until_complete(login: Login, run: Run, attempt: str) -> None:
    def is_complete() -> bool:
        login.queue()
        return (run.word("state"), run.word("attempt")) == ("COMPLETED", attempt)

    try:
        until(is_complete, f"attempt {attempt} to complete", LIMIT_S, POLL_S)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{everything_said(run)}") from error


def test_the_attempt_after_a_lost_device_runs_on_another_node(login: Login) -> None:
    # With a checkpoint there is something to continue from.
    fails = "mkdir -p $TRAINJOB_RUN_DIR/checkpoints/update-00000005; echo CUDA error: uncorrectable ECC error; exit 1"
    shows = "echo $SLURMD_NODENAME >>$TRAINJOB_RUN_DIR/ran; "
    run = login.render("--", "bash", "-c", f'{shows} if [ "$TRAINJOB_ATTEMPT" = 1 ]; then {fails}; fi')
    login.sbatch(run)
    wait_until_complete(login, run, "2")
    first, second = (run.folder / "ran").read_text().split()
    assert first != second
    assert (run.word("excluded_nodes") or "").split("\t")[:2] == [first, "1"]


def test_a_node_that_does_not_pass_the_node_check_is_left_out_before_a_rank_has_begun(login: Login) -> None:
    no_data = 'if [ "$TRAINJOB_ATTEMPT" = 1 ]; then export TRAINJOB_DATA_DIR=/nowhere; fi'
    login.cluster("checked", **NODES, node_check=True, prologue=[no_data])
    run = login.render("--", "bash", "-c", "echo $SLURMD_NODENAME >>$TRAINJOB_RUN_DIR/ran", cluster="checked")
    login.sbatch(run, TRAINJOB_PROLOGUE="")
    wait_until_complete(login, run, "2")
    second = (run.folder / "ran").read_text().strip()
    [(first, attempt, why)] = [line.split("\t") for line in (run.word("excluded_nodes") or "").splitlines()]
    assert (attempt, {first, second}) == ("1", {"node1", "node2"})
    assert "did not pass the node check: the data folder /nowhere can't be read" in why


def test_a_follow_up_continues_a_run_whose_first_node_died(login: Login) -> None:
    login.cluster("strict", **NODES, directives={"no-requeue": True}, queue_follow_up=True)
    run = login.render("--", "bash", "-c", 'if [ "$TRAINJOB_ATTEMPT" = 1 ]; then sleep 600; fi', cluster="strict")
    login.sbatch(run)
    node = first_attempt(run)
    follow_up = run.word(".follow_up")
    faults.kill_daemon(login.slurm, node)
    faults.give_up(login.slurm, node)
    wait_until_complete(login, run, "2")
    assert run.word("job_id") == follow_up
    assert (run.word("excluded_nodes") or "").split("\t")[::2] == [node, "failed"]
    # A complete run leaves no job behind.
    assert follow_up
    login.wait(follow_up)
    assert not login.slurm.run(["squeue", "--noheader"]).text.strip()
