"""Whether a local run still lives is seen from its process, never from a number alone."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths
from trainjob.submit import local
from trainjob.submit.base import Liveness, Native


@pytest.fixture
def paths(tmp_path: Path) -> Iterator[RunPaths]:
    made = RunPaths(tmp_path / "run")
    made.logs.mkdir(parents=True)
    yield made
    for pid in local.processes_of(made):
        os.kill(pid, signal.SIGKILL)


def started(paths: RunPaths, script: str) -> Native:
    paths.job_script.write_text(script)
    return local.start(paths, "job.sh")


def liveness(native: Native) -> Liveness:
    (found,) = local.liveness([native])
    return found


def wait_until(native: Native, state: Liveness, limit_s: float = 10.0) -> None:
    deadline = time.monotonic() + limit_s
    while liveness(native) is not state:
        assert time.monotonic() < deadline, f"not {state}"
        time.sleep(0.01)


def wait_for(path: Path, limit_s: float = 10.0) -> None:
    deadline = time.monotonic() + limit_s
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} did not appear"
        time.sleep(0.01)


def reap(pid: int) -> None:
    os.waitpid(pid, 0)


def test_a_run_lives_until_its_script_ends(paths: RunPaths) -> None:
    native = started(paths, "while [[ ! -e end ]]; do sleep 0.01; done")
    assert liveness(native) is Liveness.ALIVE
    (paths.folder / "end").touch()
    wait_until(native, Liveness.GONE)
    reap(native["pid"])
    assert liveness(native) is Liveness.GONE


def test_a_zombie_is_gone(paths: RunPaths) -> None:
    native = started(paths, "exit 0")
    os.waitid(os.P_PID, native["pid"], os.WEXITED | os.WNOWAIT)
    assert Path(f"/proc/{native['pid']}/stat").exists()
    assert liveness(native) is Liveness.GONE
    reap(native["pid"])


def test_a_process_id_that_is_used_again_is_another_process(paths: RunPaths) -> None:
    native = started(paths, "sleep 60")
    assert liveness({**native, "started": native["started"] - 1}) is Liveness.GONE
    assert liveness(native) is Liveness.ALIVE


def test_a_script_that_had_ended_before_we_looked_is_gone(paths: RunPaths) -> None:
    assert liveness({"pid": os.getpid(), "started": None, "host": socket.gethostname()}) is Liveness.GONE


def test_a_process_called_anything_is_read(paths: RunPaths) -> None:
    odd = paths.folder / "a) Z 1 (b"
    odd.symlink_to("/bin/sleep")
    process = subprocess.Popen([odd, "60"])
    ticks = local._started(process.pid)
    assert ticks is not None
    assert ticks > 1
    process.kill()
    process.wait()


def test_another_host_cannot_tell(paths: RunPaths) -> None:
    native = {"pid": 1, "started": 1, "host": "elsewhere"}
    assert liveness(native) is Liveness.UNKNOWN


def test_a_run_of_another_host_is_not_cancelled_here(paths: RunPaths) -> None:
    with pytest.raises(
        UserError, match=r"run run was started on host elsewhere and this is .*: log in there and cancel"
    ):
        local.cancel(paths, {"pid": 1, "started": 1, "host": "elsewhere"}, 1.0)


def test_several_runs_are_asked_for_at_once(paths: RunPaths) -> None:
    native = started(paths, "sleep 60")
    gone = {**native, "started": 1}
    assert local.liveness([native, gone, native]) == [Liveness.ALIVE, Liveness.GONE, Liveness.ALIVE]


def test_a_run_is_told_where_it_is(paths: RunPaths) -> None:
    native = started(paths, 'printf "%s\\n" "$TRAINJOB_RUN_DIR" "$PWD" >place')
    reap(native["pid"])
    assert (paths.folder / "place").read_text() == f"{paths.folder}\n{paths.folder}\n"


def test_what_the_script_prints_is_in_the_log(paths: RunPaths) -> None:
    reap(started(paths, "echo out; echo err >&2")["pid"])
    header, *lines = paths.scheduler_log.read_text().splitlines()
    assert header.startswith("--- attempt 1 · job.sh · ")
    assert lines == ["out", "err"]


def test_cancel_asks_first(paths: RunPaths) -> None:
    native = started(paths, "trap 'echo asked >asked; exit 143' TERM; touch ready; while :; do sleep 0.01; done")
    wait_for(paths.folder / "ready")
    local.cancel(paths, native, 10.0)
    assert (paths.folder / "asked").exists()
    assert liveness(native) is Liveness.GONE
    reap(native["pid"])


def test_cancel_ends_what_does_not_listen_and_what_has_slipped_away(paths: RunPaths) -> None:
    native = started(paths, "trap '' TERM; setsid sleep 61 & sleep 60 & touch ready; wait")
    wait_for(paths.folder / "ready")
    assert len(local.processes_of(paths)) >= 3
    local.cancel(paths, native, 0.05)
    assert local.processes_of(paths) == []
    reap(native["pid"])


def test_cancel_touches_no_other_run(paths: RunPaths, tmp_path: Path) -> None:
    other = RunPaths(tmp_path / "run-2")
    other.logs.mkdir(parents=True)
    bystander, native = started(other, "sleep 60"), started(paths, "sleep 60")
    local.cancel(paths, native, 1.0)
    assert (liveness(native), liveness(bystander)) == (Liveness.GONE, Liveness.ALIVE)
    local.cancel(other, bystander, 1.0)
    reap(native["pid"])
    reap(bystander["pid"])


def test_cancelling_twice_is_once(paths: RunPaths) -> None:
    native = started(paths, "sleep 60")
    local.cancel(paths, native, 1.0)
    local.cancel(paths, native, 1.0)
    assert liveness(native) is Liveness.GONE
    reap(native["pid"])


def test_a_run_whose_script_ends_just_now_can_be_cancelled(paths: RunPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    native = started(paths, "exit 0")
    reap(native["pid"])
    answers = iter([True])
    monkeypatch.setattr(local, "_is_running", lambda _: next(answers, False))
    local.cancel(paths, native, 1.0)
    assert local.processes_of(paths) == []
