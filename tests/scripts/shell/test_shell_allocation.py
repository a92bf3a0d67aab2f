"""The script of a run inside an allocation, beside a controller that says what a test wants: the library alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.shell_library import Bash, ShellOutput, SlurmBash

STEP = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "3", "SLURM_JOB_NAME": "mine", "SLURMD_NODENAME": "n1"}
SHOWN = "JobId=7 JobState=RUNNING EndTime=2099-01-01T00:00:00 NodeList=n[1-3] NumNodes=3 NumCPUs=12 Reason=None"
BOTH = "mkdir .ended; echo 0 >.ended/1.0000; echo 0 >.ended/1.0001"


@pytest.fixture
def bash(tmp_path: Path) -> Bash:
    made = SlurmBash(tmp_path, entry="allocation")
    made.program("scontrol", f"if [[ $2 == hostnames ]]; then printf 'n%d\\n' 1 2 3; else echo '{SHOWN}'; fi")
    made.program("squeue", "")
    return made


def ran(bash: Bash, ranks: str, settings: str = "hosts=1 ranks_per_host=2 cpus_per_rank=1", **more: str) -> ShellOutput:
    # The ranks meet where no name is looked up.
    page = f"{settings} step_look_s=0.1\nmeet_on_first_node() {{ :; }}\nbegin_run\nranks() {{ {ranks}\n}}"
    return bash.run(f"{page}\nranks &\nwait_for_ranks", **{**STEP, **more})


def test_a_run_is_complete_once_all_its_ranks_have_ended(bash: Bash) -> None:
    ended = ran(bash, f"{BOTH}; exit 0")
    assert (ended.code, bash.word("state")) == (0, "COMPLETED"), ended.err


def test_srun_that_returns_0_when_a_node_fails_completes_nothing(bash: Bash) -> None:
    ended = ran(bash, "mkdir .ended; echo 0 >.ended/1.0000; exit 0")
    assert (ended.code, bash.word("state")) == (75, "FAILED"), ended.err
    assert "not every rank has recorded its end: a node may have failed" in str(bash.word("events"))


def test_a_run_takes_the_first_nodes_and_no_more_cpus_than_they_have(bash: Bash) -> None:
    took = 'echo "$SLURM_JOB_NODELIST $SLURM_JOB_NUM_NODES ${SLURM_CPUS_PER_TASK:-as planned}" >took; exit 0'
    ran(bash, took, "hosts=2 ranks_per_host=2 cpus_per_rank=8")
    assert (bash.word("took"), bash.word(".nodes")) == ("n1,n2 2 2", "n1,n2")
    ran(bash, took, "hosts=2 ranks_per_host=2 cpus_per_rank=2")
    assert bash.word("took") == "n1,n2 2 as planned"


def test_the_first_attempt_takes_what_its_submission_has_seen_of_this_job(bash: Bash) -> None:
    (bash.folder / ".allocation").write_text(SHOWN.replace("n[1-3]", "m[4-6]") + "\n")
    ran(bash, f"{BOTH}; exit 0", "hosts=3 ranks_per_host=2 cpus_per_rank=1")
    assert bash.word(".nodes") == "m[4-6]"
    ran(bash, f"{BOTH}; exit 0", "hosts=3 ranks_per_host=2 cpus_per_rank=1")  # the second one asks
    assert bash.word(".nodes") == "n[1-3]"


def test_what_was_seen_of_another_job_is_not_taken(bash: Bash) -> None:
    (bash.folder / ".allocation").write_text(SHOWN.replace("JobId=7", "JobId=8").replace("n[1-3]", "m[4-6]") + "\n")
    ran(bash, f"{BOTH}; exit 0", "hosts=3 ranks_per_host=2 cpus_per_rank=1")
    assert bash.word(".nodes") == "n[1-3]"


def test_without_a_step_the_script_says_how_it_is_called(bash: Bash) -> None:
    ended = ran(bash, "exit 0", SLURM_STEP_ID="")
    assert ended.code == 1
    assert "srun --jobid=JOB --overlap" in ended.err


@pytest.mark.parametrize("nodes", ["(null)", ""])
def test_a_job_whose_nodes_are_gone_is_no_allocation(bash: Bash, nodes: str) -> None:
    bash.program("scontrol", f"echo '{SHOWN.replace('n[1-3]', nodes)}'")
    ended = bash.run("sleep() { :; }\njob=7\nshown_allocation", **STEP)
    assert (ended.code, ended.out) == (1, "")
    assert "the controller has not shown job 7, whose nodes this run takes" in ended.err
