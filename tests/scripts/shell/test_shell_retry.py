"""Attempts that ask for more than the one before: the library alone, beside a controller that stands in."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.shell_library import RUNNING, Bash, SlurmBash
from trainjob.contract.paths import RunPaths
from trainjob.records import events

JOB = {"SLURM_JOB_ID": "7", "SLURMD_NODENAME": "localhost", "SLURM_JOB_NAME": "mine"}
OUT_OF_MEMORY = "cd ..; echo '{\"exit_code\": 137}' >failure.json; : >.out_of_memory; exit 137"
TIMED_OUT = RUNNING.replace("RUNNING", "COMPLETING").replace("Reason=None", "Reason=TimeLimit")
FOLLOWS = "--parsable --dependency=afterany:7 --kill-on-invalid-dep=yes --job-name=mine --export=NONE"
MORE = "retries=2 retry_mem=(--mem=6G --mem=9G) retry_time=(--time=90)"


@pytest.fixture
def bash(tmp_path: Path) -> Bash:
    bash = SlurmBash(tmp_path)
    bash.program("sbatch", "echo 8")
    bash.program("squeue", "")
    bash.program("scancel", "")
    return bash


def page(ranks: str, settings: str = MORE) -> str:
    reported = f"max_attempts=50 counted_from=update-00000000 {settings}"
    return f"{reported}\nbegin_run\n(\ntrap '' USR1\ncd code\n{ranks}\n) &\nwait_for_ranks"


def retries(bash: Bash) -> list[dict[str, str]]:
    return events.retries(events.read(RunPaths(bash.folder)))


def test_an_attempt_without_memory_is_followed_by_a_job_that_asks_for_more(bash: Bash) -> None:
    output = bash.run(page(OUT_OF_MEMORY), **JOB)
    assert (bash.word("state"), bash.word("job_id")) == ("REQUEUED", "8"), output.err
    assert bash.calls("sbatch") == [f"{FOLLOWS} --mem=6G job.sbatch 7"]
    assert [call for call in bash.calls("scontrol") if "requeue" in call] == []
    assert retries(bash) == [{"attempt": "1", "what": "mem", "option": "--mem=6G"}]
    assert "the next attempt asks for more: --mem=6G" in output.err


def follow_up(bash: Bash, ranks: str, job: str = "8") -> str:
    """Run the job that continues, and return what it has said."""
    bash.before = f"set -- {int(job) - 1}"  # type: ignore[attr-defined] # what sbatch passes on to its script
    return bash.run(page(ranks), **{**JOB, "SLURM_JOB_ID": job}).err


def test_it_asks_for_more_and_more_until_it_has_asked_as_often_as_it_may(bash: Bash) -> None:
    bash.run(page(OUT_OF_MEMORY), **JOB)
    bash.program("sbatch", "echo 9")
    follow_up(bash, OUT_OF_MEMORY)
    assert bash.calls("sbatch")[-1].endswith("--mem=9G job.sbatch 8")
    output = follow_up(bash, OUT_OF_MEMORY, "9")
    assert (bash.word("state"), bash.word("attempt"), len(bash.calls("sbatch"))) == ("FAILED", "3", 2), output
    assert "2 attempts have asked for more, and retry.attempts is 2" in output


def test_three_attempts_that_stand_at_the_same_place_are_no_loop_while_each_has_more(bash: Bash) -> None:
    settings = "retries=3 retry_mem=(--mem=6G --mem=9G --mem=12G)"
    words = page(OUT_OF_MEMORY, settings)
    for number in ("7", "8", "9"):
        bash.program("sbatch", f"echo {int(number) + 1}")
        output = bash.run(words, **{**JOB, "SLURM_JOB_ID": number})
        bash.before = f"set -- {number}"  # type: ignore[attr-defined]
        assert bash.word("state") == "REQUEUED", output.err
    assert bash.calls("sbatch")[-1].endswith("--mem=12G job.sbatch 9")


def test_what_was_asked_for_is_asked_for_again_by_every_job_that_follows(bash: Bash) -> None:
    bash.run(page(OUT_OF_MEMORY), **JOB)
    bash.program("scontrol", f"if [[ $1 == requeue ]]; then exit 1; fi\n{RUNNING}")
    follow_up(bash, "echo 3 >../requeue; exit 75")
    assert bash.calls("sbatch")[-1].endswith("--export=NONE --mem=6G job.sbatch 8")


def test_a_time_limit_that_ended_the_attempt_is_followed_by_a_longer_one(bash: Bash) -> None:
    bash.program("scontrol", TIMED_OUT)
    output = bash.run(page("kill -TERM $$; sleep 1; exit 143"), **JOB)
    assert (bash.word("state"), bash.word("job_id")) == ("REQUEUED", "8"), output.err
    assert bash.calls("sbatch") == [f"{FOLLOWS} --time=90 job.sbatch 7"]
    assert retries(bash) == [{"attempt": "1", "what": "time", "option": "--time=90"}]


@pytest.mark.parametrize(
    ("ranks", "state"), [(OUT_OF_MEMORY, "FAILED"), ("kill -TERM $$; sleep 1; exit 143", "TIMEOUT")]
)
def test_nothing_more_is_asked_for_unless_the_job_says_so(bash: Bash, ranks: str, state: str) -> None:
    if state == "TIMEOUT":
        bash.program("scontrol", TIMED_OUT)
    bash.run(page(ranks, ""), **JOB)
    assert (bash.word("state"), bash.calls("sbatch"), retries(bash)) == (state, [], [])


def test_a_partition_that_gives_no_more_ends_the_run_with_what_was_asked_for(bash: Bash) -> None:
    bash.program("sbatch", "echo 'sbatch: error: Memory specification can not be satisfied' >&2; exit 1")
    bash.program("sleep", "true")
    output = bash.run(page(OUT_OF_MEMORY), **JOB).err
    assert bash.word("state") == "FAILED"
    assert "Slurm takes no job with --mem=6G, which may be more than the partition's limit: not started again" in output
    assert "Memory specification can not be satisfied" in output


def test_a_follow_up_that_waited_from_the_beginning_and_asks_for_less_is_replaced(bash: Bash) -> None:
    bash.program("sbatch", "if [[ $* == *afternotok* ]]; then echo 12; else echo 13; fi")
    waits = "echo 'JobId=12 JobState=PENDING Restarts=0 '"
    bash.program("scontrol", f'if [[ "$*" == *" 12" ]]; then {waits}; else {RUNNING}; fi')
    bash.run(page(OUT_OF_MEMORY, f"{MORE} queues_follow_up=1"), **JOB)
    assert bash.calls("scancel") == ["--state=PENDING 12"]
    assert (bash.word("job_id"), bash.word(".follow_up")) == ("13", "13")


def test_a_run_that_is_resumed_begins_with_what_the_job_states(bash: Bash) -> None:
    bash.run(page(OUT_OF_MEMORY), **JOB)
    bash.run(page(OUT_OF_MEMORY), **{**JOB, "SLURM_JOB_ID": "20"})
    assert [call.split()[-3] for call in bash.calls("sbatch")] == ["--mem=6G", "--mem=6G"]


def test_a_run_that_was_told_to_stop_asks_for_nothing(bash: Bash) -> None:
    bash.run(page(f": >../stop; {OUT_OF_MEMORY}"), **JOB)
    assert (bash.word("state"), bash.calls("sbatch")) == ("FAILED", [])
