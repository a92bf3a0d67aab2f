"""One srun under a controller that stalls and restarts, and beside daemons that are killed: the library alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.shell_library import RUNNING, Bash, SlurmBash

JOB = {
    "SLURM_JOB_ID": "7",
    "SLURMD_NODENAME": "localhost",
    "SLURM_JOB_NAME": "mine",
    "SLURM_JOB_NUM_NODES": "1",
    "SLURM_NTASKS_PER_NODE": "2",
}
AWAY = 'echo "srun: error: Unable to confirm allocation for job 7: Unable to contact slurm controller" >&2; exit 1'


@pytest.fixture
def bash(tmp_path: Path) -> Bash:
    return SlurmBash(tmp_path)


def page(ranks: str, *settings: str) -> str:
    """Return the lines of a page; what it prints goes where Slurm puts it."""
    reported = f"max_attempts=50 counted_from=update-00000000 step_pause_s=0.05 step_look_s=0.1 {' '.join(settings)}"
    body = f"ranks() {{\ntrap '' USR1\n{ranks}\n}}\nranks &\nwait_for_ranks"
    return f"mkdir -p logs\nexec >>logs/scheduler.out 2>&1\n{reported}\nbegin_run\n{body}"


def tries(bash: Bash, failing: int, how: str) -> str:
    """Return ranks whose srun fails as often as asked, and then works."""
    return f'echo try >>tries\nif [[ "$(wc -l <tries)" -le {failing} ]]; then\n{how}\nfi\nexit 0'


# What srun of 22.05 prints where the controller is away, or has forgotten that the job began.
FORGOTTEN = [
    "Unable to confirm allocation for job 7: Job is pending execution",
    "Unable to confirm allocation for job 7: Zero Bytes were transmitted or received",
    "Unable to create step for job 7: Job is pending execution",
    "Unable to create step for job 7: Transport endpoint is not connected",
]


@pytest.mark.parametrize("words", FORGOTTEN)
def test_srun_is_called_again_where_the_controller_has_forgotten_the_job(bash: Bash, words: str) -> None:
    output = bash.run(page(tries(bash, 1, f'echo "srun: error: {words}" >&2; exit 1')), **JOB)
    assert (output.code, bash.word("state"), bash.word("tries")) == (0, "COMPLETED", "try\ntry")


def test_srun_is_called_again_while_the_controller_is_away(bash: Bash) -> None:
    output = bash.run(page(tries(bash, 3, AWAY)), **JOB)
    assert (output.code, bash.word("state"), bash.word("tries")) == (0, "COMPLETED", "\n".join(["try"] * 4))
    assert "srun could not start the ranks while Slurm's controller was away: trying again (3)" in str(
        bash.word("logs/scheduler.out")
    )


def test_a_server_that_did_not_find_the_controller_has_failed_nothing(bash: Bash) -> None:
    how = f"""echo '{{"exit_code": 1}}' >failure.json; {AWAY}"""
    assert bash.run(page(tries(bash, 1, how)), **JOB).code == 0
    assert (bash.word("state"), bash.word("failure.json")) == ("COMPLETED", None)


@pytest.mark.parametrize(
    "how",
    [
        # Nothing of the controller's.
        'echo "srun: error: Invalid node name" >&2; exit 1',
        # A rank had begun.
        f"cp .token .began; {AWAY}",
    ],
)
def test_srun_that_failed_for_another_reason_is_called_once(bash: Bash, how: str) -> None:
    assert bash.run(page(tries(bash, 3, how)), **JOB).code == 1
    assert (bash.word("state"), bash.word("tries")) == ("FAILED", "try")


def test_a_controller_that_stays_away_is_given_up(bash: Bash) -> None:
    assert bash.run(page(tries(bash, 100, AWAY), "step_tries=3"), **JOB).code == 1
    assert (bash.word("state"), bash.word("tries")) == ("FAILED", "try\ntry\ntry")


@pytest.mark.parametrize(("codes", "state", "code"), [(("0", "0"), "COMPLETED", 0), (("0", "3"), "FAILED", 3)])
def test_a_run_whose_ranks_have_ended_does_not_wait_for_a_step_that_is_gone(
    bash: Bash, codes: tuple[str, str], state: str, code: int
) -> None:
    marks = "\n".join(f"echo {word} >.ended/1.000{rank}" for rank, word in enumerate(codes))
    output = bash.run(page(f"mkdir .ended\n{marks}\nexec sleep 600", "step_grace_s=0"), **JOB)
    assert (output.code, bash.word("state")) == (code, state)
    assert "srun has not: the daemon of its step is gone" in str(bash.word("logs/scheduler.out"))
    assert bash.word("step_gone") == "1"


def test_marks_of_a_start_that_found_no_controller_are_not_of_the_next(bash: Bash) -> None:
    # What runs the roles of a job leaves its own when its srun fails.
    ranks = f"mkdir -p .ended; if [[ ! -e again ]]; then : >again; echo 1 >.ended/1.all; {AWAY}; fi; sleep 1; exit 0"
    assert bash.run(page(ranks, "step_grace_s=0 job_ranks=2"), **JOB).code == 0
    assert bash.word("state") == "COMPLETED"


def test_a_run_whose_other_rank_still_trains_is_left_alone(bash: Bash) -> None:
    # The first attempt's marks are another attempt's.
    ranks = "mkdir .ended\necho 0 >.ended/1.0000; echo 0 >.ended/0.0001\nexec sleep 1"
    assert bash.run(page(ranks, "step_grace_s=0"), **JOB).code == 0
    assert (bash.word("state"), bash.word("step_gone")) == ("COMPLETED", None)


@pytest.mark.parametrize(("code", "lost_s", "state"), [("1", -1, "FAILED"), ("1", 600, "LEFT"), ("0", -1, "LEFT")])
def test_ranks_whose_node_has_gone_are_not_waited_for_once_a_rank_has_failed(
    bash: Bash, code: str, lost_s: int, state: str
) -> None:
    # The launcher of rank 1 was killed with its daemon, and left no mark.
    ranks = f"mkdir .ended\necho {code} >.ended/1.0000\nsleep 3\necho LEFT >left; exec true"
    bash.run(page(ranks, f"step_lost_s={lost_s}"), **JOB)
    assert (bash.word("left") or bash.word("state")) == state
    assert ("the daemon of their node is gone" in str(bash.word("logs/scheduler.out"))) == (state == "FAILED")


@pytest.mark.parametrize(
    ("shown", "state"),
    [
        ("JobState=CANCELLED Reason=None", "CANCELLED"),
        ("JobState=COMPLETING Reason=None", "CANCELLED"),
        ("JobState=COMPLETING Reason=TimeLimit", "TIMEOUT"),
        # A controller that was restarted starts the job again, which it takes for one that waits.
        ("JobState=PENDING Reason=None", "REQUEUED"),
        ("JobState=RUNNING Reason=None", "FAILED"),
    ],
)
def test_srun_that_hears_of_the_end_before_the_script_does_is_no_failure(bash: Bash, shown: str, state: str) -> None:
    bash.program("scontrol", f"echo 'JobId=7 Restarts=0 {shown} PreemptTime=None '")
    bash.run(page("exit 143"), **JOB)
    assert bash.word("state") == state


WAITS = "echo 'JobId=7 JobState=PENDING Restarts=0 Reason=None PreemptTime=None '"
MARKS = "mkdir .ended; echo 0 >.ended/1.0000; echo 0 >.ended/1.0001"


def test_a_run_whose_ranks_are_done_is_complete_although_the_controller_would_start_it_again(bash: Bash) -> None:
    bash.program("scontrol", WAITS)
    bash.program("scancel", "")
    assert bash.run(page(f"{MARKS}; exit 0"), **JOB).code == 0
    assert (bash.word("state"), bash.calls("scancel")) == ("COMPLETED", ["7"])


@pytest.mark.parametrize(
    "ranks", ["mkdir .ended; echo 0 >.ended/1.0000; exit 0", f"{MARKS}; touch .terminated.1; exit 0"]
)
def test_a_run_whose_ranks_are_not_done_is_started_again(bash: Bash, ranks: str) -> None:
    bash.program("scontrol", WAITS)
    bash.program("scancel", "")
    bash.run(page(ranks), **JOB)
    assert (bash.word("state"), bash.calls("scancel")) == ("REQUEUED", [])


@pytest.mark.parametrize(
    ("code", "shown", "state"), [(137, WAITS, "REQUEUED"), (143, WAITS, "REQUEUED"), (137, RUNNING, "FAILED")]
)
def test_ranks_that_a_restarted_controller_has_killed_are_no_failure(
    bash: Bash, code: int, shown: str, state: str
) -> None:
    bash.program("scontrol", shown)
    bash.run(page(f"""echo '{{"exit_code": {code}}}' >failure.json; exit {code}"""), **JOB)
    assert bash.word("state") == state


def test_a_rank_that_failed_is_to_blame_whatever_the_controller_says(bash: Bash) -> None:
    bash.program("scontrol", "echo 'JobId=7 Restarts=0 JobState=COMPLETING Reason=None '")
    bash.run(page("""echo '{"exit_code": 3}' >failure.json; exit 3"""), **JOB)
    assert bash.word("state") == "FAILED"


@pytest.mark.parametrize(("restarts", "state"), [("0", "CANCELLED"), ("1", "REQUEUED")])
def test_the_count_of_restarts_of_another_job_in_the_environment_is_not_this_jobs(
    bash: Bash, restarts: str, state: str
) -> None:
    # Restarts is 0 when the job begins, and grows when it is requeued; the environment has another job's count.
    bash.write("restarts", "0\n")
    bash.program("scontrol", f'echo "JobId=7 JobState=COMPLETING Restarts=$(cat {bash.folder}/restarts) Reason=None "')
    bash.run(page(f"echo {restarts} >restarts; kill -TERM $$; sleep 1"), **JOB, SLURM_RESTART_COUNT="4")
    assert bash.word("state") == state


def test_a_controller_that_hangs_does_not_keep_the_script_from_its_end(bash: Bash) -> None:
    # Names of hosts are no question to the controller.
    bash.program("scontrol", '[[ "$2" == hostnames ]] || exec sleep 600')
    bash.program("timeout", 'shift 3; [[ "$1" == scontrol ]] && exit 124; exec "$@"')
    assert bash.run(page("kill -TERM $$; sleep 1"), **JOB).code != 0
    assert bash.word("state") == "CANCELLED"
