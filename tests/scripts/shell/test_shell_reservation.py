"""The script of a reservation, beside a controller that says what a test wants: the library alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.shell_library import Bash, ShellOutput, SlurmBash

JOB = {"SLURM_JOB_ID": "7", "SLURM_JOB_NAME": "mine", "SLURMD_NODENAME": "n1"}
PAGE = "starter=hold_nodes max_attempts=1\nbegin_run\nset -m\n(hold_nodes 2 1 1) &\nwait_for_ranks"


@pytest.fixture
def bash(tmp_path: Path) -> Bash:
    made = SlurmBash(tmp_path, entry="reservation")
    made.program("scontrol", "echo 'JobId=7 JobState=RUNNING Reason=None Restarts=0'")
    return made


def held(bash: Bash, *looks: str) -> tuple[ShellOutput, int]:
    """Return the end of a reservation, and its looks for steps; what squeue does in each, and nothing afterwards."""
    each = "".join(f"{number}) {does} ;;\n" for number, does in enumerate(looks, 1))
    bash.program("squeue", f'echo >>"$TRAINJOB_RUN_DIR/looks"; case $(wc -l <"$TRAINJOB_RUN_DIR/looks") in\n{each}esac')
    return bash.run(PAGE, **JOB), len(str(bash.word("looks")).split("\n"))


def idle(bash: Bash) -> list[str]:
    events = [line.split("\t") for line in str(bash.word("events")).splitlines()]
    return [detail for _, _, what, detail in events if what == "idle"]


def test_it_ends_complete_just_before_its_time_limit(bash: Bash) -> None:
    bash.program(
        "scontrol", 'echo "JobId=7 JobState=RUNNING Restarts=0 EndTime=$(TZ=${TZ:-AAA+5} date -d "+3 seconds" +%FT%T)"'
    )
    ended, _ = held(bash, *["echo 7.1"] * 9)
    assert (ended.code, bash.word("state")) == (0, "COMPLETED"), ended.err
    assert idle(bash) == ["its time has passed: its nodes are released"]


def test_it_ends_when_no_step_runs_after_a_warning(bash: Bash) -> None:
    ended, _ = held(bash)
    assert (ended.code, bash.word("state")) == (0, "COMPLETED"), ended.err
    warning, end = idle(bash)
    assert warning.endswith("unless a run begins in it")
    assert end.endswith("its nodes are released")
    assert warning in ended.err


def test_it_ends_complete_although_its_limit_passes_as_it_ends_idle(bash: Bash) -> None:
    bash.program("scontrol", "echo 'JobId=7 JobState=TIMEOUT Reason=TimeLimit Restarts=0'")
    bash.program("squeue", 'kill -USR1 "$(cat "$TRAINJOB_RUN_DIR/script")"')
    ended = bash.run("echo $$ >script\n" + PAGE.replace("(hold", "(trap '' USR1; hold"), **JOB)
    assert (ended.code, bash.word("state")) == (0, "COMPLETED"), ended.err
    assert "USR1" in str(bash.word("events"))


@pytest.mark.parametrize(
    "looks",
    [
        (":", "echo 7.batch; echo 7.0"),
        (":", "exit 1"),
        (":", "echo '<html>Bad Gateway</html>'"),
        ('touch -d @$RANDOM "$TRAINJOB_RUN_DIR/.used"',),
    ],
    ids=["a step", "no answer", "an error page", "a run that is over between two looks"],
)
def test_what_may_be_a_use_takes_the_warning_back(bash: Bash, looks: tuple[str, ...]) -> None:
    held(bash, *looks)
    first, taken_back, *_, last, end = idle(bash)
    assert first.endswith("unless a run begins in it")
    assert taken_back == ""
    assert last.endswith("unless a run begins in it")
    assert end.endswith("its nodes are released")


def test_the_script_of_the_job_itself_is_no_use(bash: Bash) -> None:
    held(bash, *["echo 7.batch; echo 7.extern"] * 5)
    assert idle(bash)[-1].endswith("its nodes are released")
    assert "" not in idle(bash)


@pytest.mark.parametrize("jump_s", [3600, -3600])
def test_a_clock_that_jumps_neither_ends_nor_keeps_it(bash: Bash, jump_s: int) -> None:
    clock = f"read_clock() {{ clock_s=$(date +%s); if [[ -e looks ]]; then clock_s=$((clock_s + {jump_s})); fi; }}\n"
    bash.program("squeue", 'echo >>"$TRAINJOB_RUN_DIR/looks"')
    bash.run(clock + PAGE, **JOB)
    warning, end = idle(bash)
    assert warning.endswith("unless a run begins in it")
    assert end == "no step has run for 2 s: its nodes are released"


def test_its_end_is_told_by_term(bash: Bash) -> None:
    bash.program("squeue", "echo 7.0; kill -TERM $(cat script)")
    ended = bash.run(f"echo $$ >script\n{PAGE}", **JOB)
    assert ended.code != 0
    assert bash.word("state") == "CANCELLED"
