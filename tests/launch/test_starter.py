"""starter.py above a program that stands for mpirun: what it passes on, and that it leaves nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from trainjob.contract.paths import RunPaths

# Writes the signals that it hears, and ends after the one that mpirun passes on. `print` can't be entered anew by a
# handler that interrupts it.
LISTENS = """\
import os, signal, subprocess, sys, time
told = []
def heard(number, frame):
    os.write(1, signal.Signals(number).name.encode() + b"\\n")
    told.append(number)
for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM):
    signal.signal(number, heard)
slipped = subprocess.Popen(["setsid", "sleep", "304"])
print(slipped.pid, flush=True)
while signal.SIGUSR2 not in told:
    time.sleep(0.02)
"""


class Started:
    """A starter, the lines that its command prints, and the process that its command leaves behind."""

    def __init__(self, folder: Path, *command: str) -> None:
        words = [sys.executable, "-m", "trainjob.launch.ranks.starter", str(folder), "--", *command]
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.slipped = 0

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def until_ready(self) -> None:
        self.slipped = int(self.line())

    def ended(self) -> tuple[int, str]:
        _, output = self.process.communicate(timeout=60)
        return self.process.returncode, output


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Callable[..., Started]]:
    made: list[Started] = []

    def start(*command: str) -> Started:
        made.append(Started(tmp_path, *command))
        return made[-1]

    yield start
    for one in made:
        one.process.kill()
        one.process.communicate()


def is_gone(pid: int, limit_s: float = 60) -> bool:
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        try:
            if Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] == b"Z":
                return True
        except OSError:
            return True
        time.sleep(0.05)
    return False


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP], ids=["TERM", "INT", "HUP"])
def test_a_request_to_end_is_passed_on_as_the_signal_that_mpirun_hands_to_its_ranks(
    started: Callable[..., Started], sent: int
) -> None:
    one = started(sys.executable, "-c", LISTENS)
    one.until_ready()
    one.process.send_signal(signal.SIGUSR1)
    assert one.line() == "SIGUSR1"
    one.process.send_signal(sent)
    assert one.line() == "SIGUSR2"
    assert one.ended() == (0, "")
    assert is_gone(one.slipped)


def test_a_kill_of_the_starter_leaves_nothing(started: Callable[..., Started]) -> None:
    one = started(sys.executable, "-c", LISTENS)
    one.until_ready()
    (worker,) = map(int, Path(f"/proc/{one.process.pid}/task/{one.process.pid}/children").read_text().split())
    os.kill(worker, signal.SIGKILL)
    assert one.ended()[0] == 137
    assert is_gone(one.slipped)


@pytest.mark.parametrize(("code", "marker", "expected"), [(0, False, 0), (0, True, 75), (3, True, 3)])
def test_the_code_is_the_commands_and_75_where_the_ranks_left_the_marker(
    started: Callable[..., Started], tmp_path: Path, code: int, marker: bool, expected: int
) -> None:
    if marker:
        (tmp_path / "requeue").touch()
    assert started("bash", "-c", f"exit {code}").ended()[0] == expected
    assert RunPaths(tmp_path).end_mark(1).read_text() == f"{expected}\n", "bash may lose it"


def test_a_command_that_is_not_there_is_named(started: Callable[..., Started]) -> None:
    assert started("no-such-mpirun").ended() == (
        127,
        "trainjob: can't start no-such-mpirun: No such file or directory\n",
    )
