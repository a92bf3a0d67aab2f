"""What a job script keeps, whatever happens: attempts, states and exit codes; fencing; signals."""

from __future__ import annotations

import os
import pwd
import signal
import sys
import time
from pathlib import Path

import pytest

from tests.support.programs import ran
from tests.support.shell_library import Bash
from tests.support.waiting import LIMIT_S, until
from trainjob.contract.paths import RunPaths
from trainjob.records import events

# A page of kind local in small; what it starts is given.
PAGE = """\
begin_run
( trap '' USR1
%s
) &
wait_for_ranks
"""


@pytest.fixture
def bash(tmp_path: Path) -> Bash:
    return Bash(tmp_path, "local")


def ended(bash: Bash) -> tuple[str | None, str | None, str | None]:
    return bash.word("attempt"), bash.word("state"), bash.word("exit_code")


@pytest.mark.parametrize(
    ("ranks", "code", "state"),
    [("true", 0, "COMPLETED"), ("exit 7", 7, "FAILED"), ("echo 5 >requeue; exit 75", 75, "STOPPED")],
)
def test_each_end_is_written_down(bash: Bash, ranks: str, code: int, state: str) -> None:
    assert bash.run(PAGE % ranks).code == code
    assert ended(bash) == ("1", state, str(code))


# Ranks that end with 7 as a signal comes, of which bash 5.2 says -1 about once in four times.
LOST = """\
TRAINJOB_ATTEMPT=1
mkdir .ended
%s
trap : USR1
for tries in {1..40}; do
  ( trap '' USR1; /bin/kill -USR1 $$; exit 7 ) &
  wait_for $! || echo "$?"
done
"""


@pytest.mark.parametrize(
    ("mark", "codes"),
    [
        ("echo 7 >.ended/1.all", {"7"}),
        ("echo 7 >.ended/1.0003; job_ranks=1", {"7"}),
        ("echo 7 >.ended/1.0003; job_ranks=2", {"1", "7"}),  # whether that was the last rank, nobody has said
        ("echo x >.ended/1.all", {"1", "7"}),  # damaged
        ("echo 9 >.ended/1.0003; echo 7 >.ended/1.all; : >done", {"7"}),
    ],
)
def test_a_code_that_bash_loses_is_that_of_the_marks(bash: Bash, mark: str, codes: set[str]) -> None:
    printed = bash.run(LOST % mark).out.split()
    assert len(printed) == 40
    assert set(printed) <= codes


@pytest.mark.parametrize(("old", "end", "state"), [("RUNNING", "1", "FAILED"), ("CANCELLED", "0", "COMPLETED")])
def test_a_full_disk_does_not_hide_the_end(bash: Bash, old: str, end: str, state: str) -> None:
    bash.write("state", f"{old}\n")
    bash.write("attempt", "1\n")
    full = (
        "export TRAINJOB_ATTEMPT=1; for name in .state.part .exit_code.part exit_code; do ln -s /dev/full $name; done"
    )
    output = bash.run(f"set -euo pipefail; {full}; TRAINJOB_RUN_DIR=$PWD; end_attempt {end}; echo $(<state)")
    assert (output.code, output.out) == (0, f"{state}\n"), output.err
    assert output.err.count("No space left on device") == output.err.count("\n") == 1, output.err
    assert ended(bash) == ("1", state, None)


def test_an_end_is_written_down_where_its_first_write_fails(bash: Bash) -> None:
    bash.write("attempt", "1\n")
    full = "export TRAINJOB_ATTEMPT=1; ln -s /dev/full .state.part; ln -s /dev/full .exit_code.part"
    assert bash.run(f"{full}; TRAINJOB_RUN_DIR=$PWD; end_attempt 3").code == 0
    assert ended(bash) == ("1", "FAILED", "3")


def test_an_error_of_the_script_itself_is_a_failure(bash: Bash) -> None:
    assert bash.run("begin_run\nnowhere_to_be_found").code == 127
    assert ended(bash) == ("1", "FAILED", "127")


def test_a_second_attempt_begins_without_the_words_of_the_first(bash: Bash) -> None:
    for name in ("state", "requeue", "done", ".asked.3", ".saved.2", ".terminated.3", "failure.json", "exit_code"):
        bash.write(name, "old\n")
    bash.write("attempt", "3\n")
    output = bash.run("begin_attempt; ls -A; cat state; echo $TRAINJOB_ATTEMPT")
    assert output.out.split() == ["attempt", "checkpoints", "code", "events", "logs", "state", "RUNNING", "4"]


def noted(bash: Bash) -> list[tuple[int, str, str]]:
    return [(event.attempt, event.what, event.detail) for event in events.read(RunPaths(bash.folder))]


def test_each_attempt_notes_when_it_began_and_ended(bash: Bash) -> None:
    before = time.time()
    bash.run(PAGE % "exit 7")
    bash.run(PAGE % "kill -9 $$")
    bash.write("progress.json", "{}")
    os.utime(bash.folder / "progress.json", (before, before))
    bash.run(PAGE % "true")
    assert noted(bash) == [
        *((1, "began", ""), (1, "ended", "FAILED 7")),
        *((2, "began", ""), (2, "lost", "")),
        *((3, "began", ""), (3, "ended", "COMPLETED 0")),
    ]
    assert events.why_ended(events.read(RunPaths(bash.folder)), 2).startswith("its job script noted no end")
    times = [event.at for event in events.read(RunPaths(bash.folder))]
    assert times.pop(3) == int(before)
    assert before - 1 <= times[0] <= times[-1] <= time.time()
    assert times == sorted(times)


def test_the_request_that_a_rank_got_is_noted_with_its_own_time(bash: Bash) -> None:
    bash.run("begin_attempt; echo 'TERM 1000.250' >.asked.1; TRAINJOB_RUN_DIR=$PWD; end_attempt 0")
    noted_as = [(event.what, event.detail) for event in events.read(RunPaths(bash.folder))]
    assert noted_as[1] == ("asked", "TERM")
    assert events.read(RunPaths(bash.folder))[1].at == 1000.25
    assert noted_as[2][1].startswith("STOPPED 0 asked to stop")


@pytest.mark.parametrize(("got", "is_noted"), [("USR1", True), ("TERM", False)])
def test_a_signal_that_went_past_the_script_is_noted_with_its_sender(bash: Bash, got: str, is_noted: bool) -> None:
    word = "1000.250 the launcher of rank 1 on n2, sent by slurmstepd (process 9 of user 0)"
    scripted = f"begin_attempt; note_event signal TERM; echo '{word}' >.bypassed.1.{got}; TRAINJOB_RUN_DIR=$PWD"
    bash.run(f"{scripted}; end_attempt 0")
    found = [(one.detail, one.at) for one in events.read(RunPaths(bash.folder)) if one.what == "bypassed"]
    assert found == ([(f"{got} {word.partition(' ')[2]}", 1000.25)] if is_noted else [])


@pytest.mark.parametrize("name", ["TERM", "INT", "HUP"])
def test_each_signal_to_the_script_is_noted_by_its_name(bash: Bash, name: str) -> None:
    bash.run(
        f"begin_attempt; trap_each 'cancelled=1' TERM INT HUP; kill -{name} $$; [[ -n $cancelled ]] && echo it >did"
    )
    assert [one.detail for one in events.read(RunPaths(bash.folder)) if one.what == "signal"] == [name]
    assert bash.word("did") == "it"


@pytest.mark.parametrize("kind", ["pipe", "folder", "full"])
def test_events_that_cannot_be_noted_change_nothing(bash: Bash, kind: str) -> None:
    makes = {"pipe": "mkfifo events", "folder": "mkdir events", "full": "ln -s /dev/full events"}
    assert bash.run(f"{makes[kind]}\n{PAGE % 'exit 7'}").code == 7
    assert ended(bash) == ("1", "FAILED", "7")


@pytest.mark.parametrize(("word", "attempt"), [("3", "4"), ("08\n", "9"), ("\n", "1"), ("7\nand more\n", "8")])
def test_the_number_of_the_last_attempt_is_read_however_it_was_written(bash: Bash, word: str, attempt: str) -> None:
    bash.write("attempt", word)
    assert bash.run("begin_attempt").code == 0
    assert bash.word("attempt") == attempt


@pytest.mark.parametrize("word", ["BASH_VERSINFO[$(touch canary)]", "x", "-1", "1 2", "\x1b[2J", "9" * 30])
def test_a_damaged_attempt_is_refused_and_never_evaluated(bash: Bash, word: str) -> None:
    bash.write("attempt", f"{word}\n")
    output = bash.run(PAGE % "true")
    assert output.code == 1
    assert "file attempt of the run directory is damaged" in output.err
    assert "\x1b" not in output.err
    assert bash.word("canary") is None
    assert bash.word("state") == "FAILED"


def test_a_word_is_never_seen_half_written(bash: Bash) -> None:
    bash.program("mv", "test ! -e state && cat .state.part")
    assert bash.run("write_word state RUNNING").out == "RUNNING\n"


def test_an_older_attempt_leaves_the_files_alone(bash: Bash) -> None:
    assert bash.run(PAGE % "echo 2 >attempt; echo RUNNING >state; exit 7").code == 7
    assert ended(bash) == ("2", "RUNNING", None)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_script_that_is_told_to_end_tells_its_ranks_and_is_cancelled(bash: Bash, number: signal.Signals) -> None:
    # A shell that runs in the background ignores INT: what the script hands on is TERM.
    process = bash.start(PAGE % "trap 'echo told >told; exit 5' TERM\ntouch ready\nwhile :; do sleep 0.05; done")
    until(lambda: bash.word("ready") is not None, "the ranks to start")
    process.send_signal(number)
    assert process.wait(LIMIT_S) == 5
    assert (bash.word("told"), ended(bash)) == ("told", ("1", "CANCELLED", "5"))
    assert noted(bash)[1:] == [
        (1, "signal", number.name[3:]),
        (1, "ended", "CANCELLED 5 cancelled: trainjob resume starts it again"),
    ]


# As the launcher and srun do it, and as a handler does it.
BLOCKS = "signal.signal(10, signal.SIG_DFL); signal.pthread_sigmask(signal.SIG_BLOCK, {10}); "
LISTENS = {
    "blocks": BLOCKS + 'pathlib.Path("ready").touch(); signal.sigwait({10}); exit(75)',
    "catches": 'signal.signal(10, lambda *_: exit(75)); pathlib.Path("ready").touch(); signal.pause()',
}


@pytest.mark.parametrize("how", LISTENS)
def test_a_request_for_a_checkpoint_is_handed_on(bash: Bash, how: str) -> None:
    process = bash.start(PAGE % f"exec python3 -c 'import signal, pathlib; {LISTENS[how]}'")
    until(lambda: bash.word("ready") is not None, "the ranks to start")
    bash.write("requeue", "5\n")
    process.send_signal(signal.SIGUSR1)
    assert process.wait(LIMIT_S) == 75
    assert ended(bash) == ("1", "STOPPED", "75")
    why = "its ranks have stopped, and left a checkpoint: trainjob resume continues"
    assert noted(bash)[1:] == [(1, "signal", "USR1"), (1, "ended", f"STOPPED 75 {why}")]


def test_names_of_the_users_environment_change_nothing(bash: Bash) -> None:
    taken = dict.fromkeys(("cancelled", "launcher", "engine", "port", "job", "state", "last", "first_host"), "x")
    assert bash.run(PAGE % "exit 7", **taken).code == 7
    assert ended(bash) == ("1", "FAILED", "7")


@pytest.mark.parametrize("redirected", ["", "/else where"])
def test_what_a_rehearsal_has_redirected_stays(bash: Bash, redirected: str) -> None:
    lines = 'use_data "/shared data"; use_python python3.8; env | grep ^TRAINJOB_DATA; echo "$TRAINJOB_PYTHON"'
    output = bash.run(lines, TRAINJOB_DATA_DIR=redirected, TRAINJOB_PYTHON=redirected)
    assert output.out.splitlines() == [f"TRAINJOB_DATA_DIR={redirected or '/shared data'}", redirected or "python3.8"]


def test_the_runtime_is_found_although_the_user_has_set_pythonsafepath(tmp_path: Path) -> None:
    bash = Bash(tmp_path, "record", "settings")
    bash.write("code/runtime.py", "print('the runtime')\n")
    lines = f'TRAINJOB_RUN_DIR=$PWD\nuse_python {sys.executable}\ncd code && "$TRAINJOB_PYTHON" -m runtime'
    assert bash.run(lines, PYTHONSAFEPATH="1").out == "the runtime\n"
    assert bash.run(f'{lines} && echo "${{PYTHONPATH:-}}"').out == "the runtime\n\n"


@pytest.mark.parametrize("home", ["", None])
def test_a_page_knows_the_users_home_where_the_environment_lacks_it(bash: Bash, home: str | None) -> None:
    lines = 'printf "%s" "$HOME"' if home is None else 'HOME=""; . "$TRAINJOB_SHELL/record.sh"; printf "%s" "$HOME"'
    environ = bash.environ()
    del environ["HOME"]
    ended = ran(["bash", "-c", bash.text(lines)], folder=bash.folder, environ=environ)
    assert (ended.returncode, ended.stdout) == (0, pwd.getpwuid(os.getuid()).pw_dir), ended.stderr


def test_a_checkpoint_is_asked_for_before_the_time_limit(bash: Bash) -> None:
    saves = 'exit(75 if pathlib.Path("requeue").write_text("5") else 1)'
    ranks = f"exec python3 -c 'import signal, pathlib; {BLOCKS}signal.sigwait({{10}}); {saves}'"
    output = bash.run("time_limit_s=8 time_limit_margin_s=7\n" + PAGE % ranks)
    assert (output.code, bash.word("state")) == (75, "STOPPED")
    assert "the time limit of 8 s is near" in output.err
    assert [event.what for event in events.read(RunPaths(bash.folder))] == ["began", "signal", "ended"]


def test_the_time_limit_ends_what_does_not_stop(bash: Bash) -> None:
    output = bash.run("time_limit_s=2 time_limit_margin_s=1\n" + PAGE % "while :; do sleep 0.1; done")
    assert (output.code, bash.word("state")) == (143, "TIMEOUT")


def test_a_run_that_ends_in_time_leaves_nobody_waiting_for_the_limit(bash: Bash) -> None:
    output = bash.run("time_limit_s=100000 time_limit_margin_s=1\n" + PAGE % "true")
    assert (output.code, bash.word("state")) == (0, "COMPLETED")
    words = str(bash.folder).encode()
    until(lambda: not [pid for pid in Path("/proc").glob("[0-9]*") if words in _environment(pid)], "nobody waits")


def _environment(pid: Path) -> bytes:
    try:
        return (pid / "environ").read_bytes()
    except OSError:
        return b""
