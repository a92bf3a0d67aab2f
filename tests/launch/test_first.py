"""The first process of a container: it stays for what its command leaves behind, and passes signals on."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.support.programs import ran

FIRST = [sys.executable, "-m", "trainjob.launch.ranks.first"]
LIMIT_S = 60.0


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} did not appear"
        time.sleep(0.02)


def test_it_exits_as_its_command_does() -> None:
    assert subprocess.run([*FIRST, "sh", "-c", "exit 7"], timeout=LIMIT_S).returncode == 7


def test_it_stays_until_what_was_left_behind_has_ended(tmp_path: Path) -> None:
    script = f"setsid sh -c 'while ! test -e {tmp_path}/go; do sleep 0.05; done; touch {tmp_path}/done' & echo left"
    started = subprocess.Popen([*FIRST, "sh", "-c", script], stdout=subprocess.PIPE, text=True)
    assert started.stdout is not None
    with started.stdout as stream:
        assert stream.readline() == "left\n"
        assert started.poll() is None
        (tmp_path / "go").touch()
        assert started.wait(LIMIT_S) == 0
    assert (tmp_path / "done").exists()


def test_a_signal_reaches_the_command_and_what_was_left_behind(tmp_path: Path) -> None:
    left = f'trap "touch {tmp_path}/told; exit" TERM; touch {tmp_path}/ready; while :; do sleep 0.05; done'
    started = subprocess.Popen([*FIRST, "sh", "-c", f"setsid sh -c '{left}' & exit 3"])
    wait_for(tmp_path / "ready")
    started.send_signal(signal.SIGTERM)
    assert started.wait(LIMIT_S) == 3
    assert (tmp_path / "told").exists()


def test_a_command_that_is_not_there_is_said() -> None:
    ended = ran([*FIRST, "no-such-program"], timeout_s=LIMIT_S)
    assert (ended.returncode, ended.stderr) == (
        127,
        "trainjob: can't start no-such-program: No such file or directory\n",
    )
