"""trainjob watch on a terminal of its own, and without one."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.support.local_runs import Here
from tests.support.programs import TRAINJOB, ran

LIMIT_S = 60


class Terminal:
    """A terminal with `trainjob watch` in it."""

    def __init__(self, here: Here, *words: str) -> None:
        self._end, theirs = pty.openpty()
        environ = {**here.environ, "TERM": "xterm", "COLUMNS": "160", "LINES": "50"}
        self.process = subprocess.Popen(
            [TRAINJOB, "watch", "--every-s", "0.5", *words],
            cwd=here.project,
            env=environ,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        self.seen = ""

    def press(self, key: str) -> None:
        os.write(self._end, key.encode())

    def wait_for(self, text: str) -> None:
        """Read until `text` is drawn after what was waited for before."""
        seen, until = "", time.monotonic() + LIMIT_S
        while text not in seen:
            assert time.monotonic() < until, (text, seen[-3000:])
            if select.select([self._end], [], [], 1)[0]:
                try:
                    seen += os.read(self._end, 65536).decode(errors="replace")
                except OSError:
                    pytest.fail(f"it ended before it showed {text!r}: {seen[-3000:]}")

    def close(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        os.close(self._end)


@contextmanager
def watching(here: Here, *words: str) -> Iterator[Terminal]:
    terminal = Terminal(here, *words)
    try:
        yield terminal
    finally:
        terminal.close()


@pytest.fixture
def run(here: Here) -> str:
    """A run of a command, which has ended."""
    here.write("say.py", "print('said by the rank')\n")
    run: str = here.json("submit", "--follow", "--", "python", "say.py")["id"]
    return run


def test_keys_choose_open_and_leave(here: Here, run: str) -> None:
    with watching(here) as terminal:
        terminal.wait_for(run)
        terminal.press("\r")
        terminal.wait_for("said by the rank")
        terminal.press("\x1b")
        terminal.wait_for("PROGRESS")
        terminal.press("l")
        terminal.wait_for("said by the rank")
        terminal.press("q")
        assert terminal.process.wait(LIMIT_S) == 0


def test_cancelling_takes_the_key_twice(here: Here) -> None:
    here.write("wait.py", "import time\nprint('waiting', flush=True)\ntime.sleep(600)\n")
    run = here.json("submit", "--", "python", "wait.py")["id"]
    with watching(here, run) as terminal:
        terminal.wait_for("waiting")
        terminal.press("c")
        terminal.wait_for(f"press c again to cancel {run}")
        terminal.press("k")  # any other key leaves it
        terminal.wait_for("waiting")
        terminal.press("c")
        terminal.wait_for(f"press c again to cancel {run}")
        assert here.json("status", run)["state"] == "RUNNING"
        terminal.press("c")
        terminal.wait_for(f"{run} is CANCELLED")
        terminal.press("q")
        assert terminal.process.wait(LIMIT_S) == 0
    assert here.json("status", run)["state"] == "CANCELLED"


def test_without_a_terminal_it_prints_lines_until_the_run_has_ended(here: Here, run: str) -> None:
    ended = ran([TRAINJOB, "watch", run], folder=here.project, environ=here.environ, timeout_s=LIMIT_S)
    assert ended.stdout.splitlines() == [f"{run} · COMPLETED"], ended.stderr


def test_no_runs_is_a_hint(here: Here) -> None:
    with watching(here) as terminal:
        terminal.wait_for("no runs yet")
        terminal.press("q")
        assert terminal.process.wait(LIMIT_S) == 0
