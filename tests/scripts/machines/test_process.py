"""System commands: what they leave, and what a user reads when one is missing, hangs or fails."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from trainjob.machines.process import CommandError, run, search_path, start_detached


def wait_for(path: Path, limit_s: float = 100.0) -> str:
    deadline = time.monotonic() + limit_s
    while not (path.exists() and path.read_text().endswith("\n")):
        assert time.monotonic() < deadline, f"{path} did not appear"
        time.sleep(0.01)
    return path.read_text()


def test_a_command_leaves_its_output_and_code() -> None:
    ended = run(["sh", "-c", "echo out; echo err >&2"])
    assert (ended.code, ended.text, ended.stderr) == (0, "out\n", "err\n")


def test_arguments_are_a_list_and_no_shell_reads_them() -> None:
    assert run(["printf", "%s", "$(date); `date`"]).text == "$(date); `date`"


def test_output_may_be_any_bytes() -> None:
    ended = run(["printf", r"\377"])
    assert (ended.stdout, ended.text) == (b"\xff", "�")


def test_a_command_reads_nothing_of_ours() -> None:
    assert run(["cat"]).stdout == b""


def test_a_missing_program() -> None:
    with pytest.raises(CommandError, match="no-such-program is not on PATH: install it, or add its folder to PATH"):
        run(["no-such-program", "x"])


def test_a_missing_folder_is_not_blamed_on_the_program(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=r"git can't be started in .*/nowhere: that is not a folder"):
        run(["git", "status"], folder=tmp_path / "nowhere")


def test_a_program_that_may_not_be_executed(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("x")
    with pytest.raises(CommandError, match=r"text can't be started: Permission denied"):
        run([str(tmp_path / "text")])


def test_arguments_that_no_system_takes() -> None:
    with pytest.raises(CommandError, match="the arguments and the environment of true are larger"):
        run(["true", "x" * (1 << 22)])


def test_a_command_that_hangs() -> None:
    with pytest.raises(CommandError, match=r"`sleep 60` did not end within 0.1 s"):
        run(["sleep", "60"], timeout_s=0.1)


@pytest.mark.parametrize(("where", "redirect"), [("stderr", ">&2"), ("stdout", "")])
def test_a_failure_says_what_ran_and_what_it_said(where: str, redirect: str) -> None:
    with pytest.raises(CommandError) as caught:
        run(["sh", "-c", f"echo 'no such partition' {redirect}; exit 3"])
    assert str(caught.value).endswith("exited with 3: no such partition")
    assert str(caught.value).startswith("`sh -c 'echo '")
    assert caught.value.completed is not None
    assert caught.value.completed.code == 3


def test_a_program_whose_text_travels_with_it_is_named_in_one_line() -> None:
    with pytest.raises(CommandError) as caught:
        run(["sh", "-c", "# start.sh: starts it\nexit 4\n", "start.sh", "/runs/a b"])
    assert str(caught.value) == "`start.sh '/runs/a b'` exited with 4: "
    with pytest.raises(CommandError) as caught:
        run(["sh", "-c", "exit 4\n# the end"])
    assert str(caught.value) == "`sh -c 'exit 4 …'` exited with 4: "


def test_a_failure_can_be_an_answer() -> None:
    assert run(["false"], check=False).code == 1


def test_a_detached_command_has_a_session_of_its_own_and_no_terminal(tmp_path: Path) -> None:
    log = tmp_path / "log"
    report = "import os, sys; print(os.getsid(0) == os.getpid(), sys.stdin.read() == '', os.environ['A'], os.getcwd())"
    pid = start_detached([sys.executable, "-c", report], folder=tmp_path, log=log, environment={"A": "b c"})
    assert wait_for(log) == f"True True b c {tmp_path}\n"
    os.waitpid(pid, 0)


def test_a_detached_command_appends_to_its_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("before\n")
    pid = start_detached(["echo", "after"], folder=tmp_path, log=log, environment={"PATH": os.defpath})
    os.waitpid(pid, 0)
    assert log.read_text() == "before\nafter\n"


def test_our_interpreter_comes_first_on_the_path_of_local_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/one:/two")
    assert search_path() == f"{Path(sys.executable).parent}:/one:/two"
