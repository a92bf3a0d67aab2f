"""Whether a detached run lives is seen from its process, never from a number alone; and all of it can be ended."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.records import record
from tests.support.run_folders import submission
from tests.support.runs_at_work import settings
from trainjob.backends import detached
from trainjob.backends.base import Liveness
from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths
from trainjob.lifecycle.cancel import cancel
from trainjob.lifecycle.resume import refuse_unless_ended
from trainjob.machines import processes
from trainjob.machines.access import HERE
from trainjob.machines.machine import Machine
from trainjob.observe.status import status
from trainjob.records import attempts
from trainjob.records.job import ClusterRecord, RequestRecord
from trainjob.records.submission import Native, Submission


@pytest.fixture
def paths(tmp_path: Path) -> Iterator[RunPaths]:
    made = RunPaths(tmp_path / "run")
    made.logs.mkdir(parents=True)
    yield made
    processes.kill(HERE, str(made.folder))


def started(paths: RunPaths, script: str) -> Native:
    paths.job_script.write_text(script)
    attempt = attempts.current(paths) + 1
    return detached.start(paths, Submission(**submission(None, "2026-01-01T00:00:00+00:00", attempt=attempt)))


def liveness(native: Native) -> Liveness:
    (answer,) = detached.ask([native])
    return answer.liveness


def processes_of(paths: RunPaths) -> list[int]:
    return processes.kill(HERE, str(paths.folder), signal="0")


def wait_until_gone(native: Native, limit_s: float = 100.0) -> None:
    deadline = time.monotonic() + limit_s
    while liveness(native) is not Liveness.GONE:
        assert time.monotonic() < deadline, "not gone"
        time.sleep(0.01)


def wait_for(path: Path, limit_s: float = 100.0) -> None:
    deadline = time.monotonic() + limit_s
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} did not appear"
        time.sleep(0.01)


def start_time(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])


def test_a_run_lives_until_its_script_ends(paths: RunPaths) -> None:
    native = started(paths, "while [[ ! -e end ]]; do sleep 0.01; done")
    assert liveness(native) is Liveness.ALIVE
    (paths.folder / "end").touch()
    wait_until_gone(native)


def test_a_zombie_is_gone() -> None:
    child = subprocess.Popen(["true"])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    native = {"pid": child.pid, "started": start_time(child.pid), "host": socket.gethostname()}
    assert liveness(native) is Liveness.GONE
    child.wait()


def test_a_process_id_that_is_used_again_is_another_process(paths: RunPaths) -> None:
    native = started(paths, "sleep 60")
    assert liveness({**native, "started": native["started"] - 1}) is Liveness.GONE
    assert liveness(native) is Liveness.ALIVE


def test_a_script_that_had_ended_before_we_looked_is_gone() -> None:
    assert liveness({"pid": os.getpid(), "started": None, "host": socket.gethostname()}) is Liveness.GONE


def test_a_run_is_recorded_by_its_process_its_start_time_and_its_host(paths: RunPaths) -> None:
    native = started(paths, "sleep 60")
    assert native == {
        "pid": native["pid"],
        "started": start_time(native["pid"]),
        "host": socket.gethostname(),
        "folder": str(paths.folder),
        "ssh": None,
        "user": None,
    }
    assert os.getsid(native["pid"]) == native["pid"]


def test_another_host_cannot_tell() -> None:
    assert liveness({"pid": 1, "started": 1, "host": "elsewhere"}) is Liveness.UNKNOWN


def test_a_run_of_another_host_is_not_cancelled_here(paths: RunPaths) -> None:
    with pytest.raises(UserError, match=r"was started on host elsewhere, which is not this machine: log in there and"):
        detached.cancel(paths, of_native({"pid": 1, "started": 1, "host": "elsewhere"}), 1.0)


def of_native(native: Native) -> Submission:
    """Return the submission that left this native id."""
    return Submission(**submission(native, "2026-01-01T00:00:00+00:00"))


def submitted(paths: RunPaths, script: str) -> Native:
    """Start a script, and record it as `submit` does."""
    native = started(paths, script)
    paths.job.write_text(record().to_json())
    paths.attempt.write_text("1\n")
    paths.state.write_text("RUNNING\n")
    of_native(native).write(paths)
    return native


def test_cancelling_a_copy_leaves_the_original_alone(paths: RunPaths) -> None:
    native = submitted(paths, "sleep 60")
    copy = RunPaths(paths.folder.with_name("copy"))
    shutil.copytree(paths.folder, copy.folder)
    now = status(copy)
    assert (now.state, now.note) == ("LOST", f"this is a copy of {paths.folder}: what runs belongs to the original")
    with pytest.raises(UserError, match=f"is a copy: what runs belongs to {paths.folder}"):
        cancel(copy, grace_s=0.1)
    with pytest.raises(UserError, match=f"is a copy of {paths.folder}"):
        refuse_unless_ended(now)
    assert liveness(native) is Liveness.ALIVE
    assert status(paths).state == "RUNNING"


def test_a_process_that_runs_for_another_folder_is_not_ended(paths: RunPaths) -> None:
    native = submitted(paths, "sleep 60")
    copy = RunPaths(paths.folder.with_name("copy"))
    shutil.copytree(paths.folder, copy.folder)
    paths.submission.unlink()  # as if the original had been removed while it runs
    cancel(copy, grace_s=0.1)
    assert liveness(native) is Liveness.ALIVE


def test_a_run_whose_folder_was_moved_is_still_the_same_run(paths: RunPaths) -> None:
    native = submitted(paths, "while [[ ! -e end ]]; do sleep 0.01; done")
    moved = RunPaths(paths.folder.with_name("moved"))
    paths.folder.rename(moved.folder)
    assert status(moved).state == "RUNNING"
    assert cancel(moved, grace_s=60.0).state == "CANCELLED"
    assert liveness(native) is Liveness.GONE


def test_a_signal_reaches_only_the_process_that_was_started(paths: RunPaths) -> None:
    native = started(paths, "trap 'touch told' USR1; touch ready; while true; do sleep 0.01; done")
    wait_for(paths.folder / "ready")
    detached.interrupt({**native, "folder": str(paths.folder.with_name("another"))})
    detached.interrupt({**native, "started": native["started"] - 1})
    assert not (paths.folder / "told").exists()
    detached.interrupt(native)
    wait_for(paths.folder / "told")


def test_several_runs_are_asked_for_at_once(paths: RunPaths) -> None:
    native = started(paths, "sleep 60")
    gone = {**native, "started": 1}
    answers = [answer.liveness for answer in detached.ask([native, gone, native])]
    assert answers == [Liveness.ALIVE, Liveness.GONE, Liveness.ALIVE]


def test_a_run_is_told_where_it_is(paths: RunPaths) -> None:
    native = started(paths, 'printf "%s\\n" "$TRAINJOB_RUN_DIR" "$PWD" >place')
    wait_until_gone(native)
    assert (paths.folder / "place").read_text() == f"{paths.folder}\n{paths.folder}\n"


def test_what_the_script_prints_is_in_the_log(paths: RunPaths) -> None:
    wait_until_gone(started(paths, "echo out; echo err >&2"))
    header, *lines = paths.scheduler_log.read_text().splitlines()
    assert header.startswith(f"--- attempt 1 · job.sh · {socket.gethostname()} · 20")
    assert lines == ["out", "err"]


@pytest.mark.parametrize("name", ["INT", "QUIT", "TERM", "HUP", "USR1"])
def test_a_script_can_take_every_signal(paths: RunPaths, name: str) -> None:
    native = started(paths, f"trap 'touch told; exit' {name}; touch ready; while :; do sleep 0.01; done")
    wait_for(paths.folder / "ready")
    os.kill(native["pid"], signal.Signals[f"SIG{name}"])
    wait_until_gone(native)
    assert (paths.folder / "told").exists()


@pytest.mark.parametrize(
    ("file", "trains", "is_ours"),
    [
        ({"kind": "local"}, True, True),
        ({"kind": "local"}, False, False),
        ({"kind": "ipu-pod", "ipus": 4, "host_count": 1}, True, False),
    ],
    ids=["a task here", "a command here", "a pod"],
)
def test_our_own_interpreter_comes_first_for_a_task_on_this_machine_alone(
    paths: RunPaths, file: Any, trains: bool, is_ours: bool
) -> None:
    asked = record(train=settings() if trains else None, request=RequestRecord(ClusterRecord("there", file), {}))
    paths.job.write_text(asked.to_json())
    wait_until_gone(started(paths, 'command -v python3 | tr -d "\\n" >which'))
    found = (paths.folder / "which").read_text()
    assert found.startswith(str(Path(sys.executable).parent)) is is_ours


def test_cancel_asks_first(paths: RunPaths) -> None:
    native = started(paths, "trap 'echo asked >asked; exit 143' TERM; touch ready; while :; do sleep 0.01; done")
    wait_for(paths.folder / "ready")
    detached.cancel(paths, of_native(native), 100.0)
    assert (paths.folder / "asked").exists()
    assert liveness(native) is Liveness.GONE


def test_a_script_that_ends_when_asked_leaves_nobody_behind(paths: RunPaths) -> None:
    native = started(paths, "setsid sleep 61 & trap 'exit 143' TERM; touch ready; while :; do sleep 0.01; done")
    wait_for(paths.folder / "ready")
    detached.cancel(paths, of_native(native), 100.0)
    assert processes_of(paths) == []


def test_cancel_ends_what_does_not_listen_and_what_has_slipped_away(paths: RunPaths) -> None:
    native = started(paths, "trap '' TERM; setsid sleep 61 & env -i sleep 62 & touch ready; wait")
    wait_for(paths.folder / "ready")
    assert len(processes_of(paths)) >= 3
    detached.cancel(paths, of_native(native), 0.05)
    assert processes_of(paths) == []


def test_a_script_whose_ranks_are_killed_still_records_its_end(paths: RunPaths) -> None:
    native = started(paths, "trap '' TERM; trap 'echo ended >ended' EXIT; sleep 60 & touch ready; wait; exit 3")
    wait_for(paths.folder / "ready")
    detached.cancel(paths, of_native(native), 0.05)
    assert (paths.folder / "ended").exists()


def test_other_hosts_are_cleared_before_the_mpirun_that_holds_them_ends(
    paths: RunPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    native = started(paths, "trap '' TERM; sleep 60 & touch ready; wait")
    wait_for(paths.folder / "ready")
    kill, asked = processes.kill, list[str | None]()

    def recorded(machine: Machine, folder: str, *, host: str | None = None, **more: Any) -> list[int]:
        asked.append(host)
        return kill(machine, folder, **more) if host is None else []

    monkeypatch.setattr(detached, "hosts_of", lambda _: (native["host"], "gpu-2", "gpu-3"))
    monkeypatch.setattr(processes, "kill", recorded)
    detached.cancel(paths, of_native(native), 0.05)
    assert {*asked[:2]} == {"gpu-2", "gpu-3"}
    assert {*asked[2:]} == {None, native["host"], "gpu-2", "gpu-3"}


def test_a_process_that_is_called_anything_belongs_to_its_run(paths: RunPaths) -> None:
    odd = paths.folder / "a) Z 1\n(b"
    odd.symlink_to("/bin/sleep")
    child = subprocess.Popen([odd, "60"], env={"TRAINJOB_RUN_DIR": str(paths.folder)})
    assert processes_of(paths) == [child.pid]
    child.kill()
    child.wait()
    assert processes_of(paths) == []


def test_a_run_can_be_ended_from_inside_of_it(paths: RunPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    native = started(paths, "trap '' TERM; sleep 60 & touch ready; wait")
    wait_for(paths.folder / "ready")
    monkeypatch.setenv("TRAINJOB_RUN_DIR", str(paths.folder))
    detached.cancel(paths, of_native(native), 0.05)
    assert processes_of(paths) == []


def test_cancel_touches_no_other_run(paths: RunPaths, tmp_path: Path) -> None:
    other = RunPaths(tmp_path / "run-2")
    other.logs.mkdir(parents=True)
    bystander, native = started(other, "sleep 60"), started(paths, "sleep 60")
    detached.cancel(paths, of_native(native), 1.0)
    assert (liveness(native), liveness(bystander)) == (Liveness.GONE, Liveness.ALIVE)
    detached.cancel(other, of_native(bystander), 1.0)


def test_cancelling_twice_is_once(paths: RunPaths) -> None:
    native = started(paths, "sleep 60")
    detached.cancel(paths, of_native(native), 1.0)
    detached.cancel(paths, of_native(native), 1.0)
    assert liveness(native) is Liveness.GONE


def test_a_run_whose_script_ends_just_now_can_be_cancelled(paths: RunPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    native = started(paths, "exit 0")
    wait_until_gone(native)
    answers = iter([[True]])
    monkeypatch.setattr(processes, "running", lambda *_, **__: next(answers, [False]))
    detached.cancel(paths, of_native(native), 1.0)
    assert processes_of(paths) == []


def test_a_stop_by_signal_reaches_the_script(paths: RunPaths) -> None:
    native = started(paths, "trap 'touch stopped; exit' USR1; touch ready; while :; do sleep 0.01; done")
    wait_for(paths.folder / "ready")
    detached.interrupt(native)
    wait_until_gone(native)
    assert (paths.folder / "stopped").exists()


def test_another_attempt_ends_what_an_attempt_without_an_end_has_left(paths: RunPaths) -> None:
    paths.attempt.write_text("1\n")
    paths.state.write_text("RUNNING\n")
    native = started(paths, "setsid sleep 61 & touch ready")
    wait_for(paths.folder / "ready")
    wait_until_gone(native)
    left = processes_of(paths)
    assert len(left) == 1
    wait_until_gone(started(paths, "true"))
    assert processes_of(paths) == []
