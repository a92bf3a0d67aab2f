"""This machine: the job script as a process of its own, detached from the terminal."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
from collections.abc import Sequence
from pathlib import Path

from trainjob.contract import attempts
from trainjob.contract.environment import RUN_DIR
from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths
from trainjob.submit import containers, process
from trainjob.submit.base import Answer, Liveness, Native

_PROC = Path("/proc")
_POLL_S = 0.05
_TRAP_S = 2.0  # the script's trap writes two words
_KILL_S = 10.0


def argv(paths: RunPaths, script: str) -> list[str]:  # noqa: ARG001 - the Protocol's signature
    """Return the command that runs a job script here."""
    return ["bash", script]


def start(paths: RunPaths, script: str) -> Native:
    """Return process id, start time and host of the job script, which now runs by itself."""
    # An attempt whose script was killed may have ranks left, which would write beside the new ones.
    _kill_what_is_left(paths)
    _head(paths, script)
    environment = {
        **os.environ,
        RUN_DIR: str(paths.folder),
        # The interpreter that runs us has what we were installed with; the script just says python3.
        "PATH": process.search_path(),
    }
    pid = process.start_detached(
        argv(paths, script), folder=paths.folder, log=paths.scheduler_log, environment=environment
    )
    return {"pid": pid, "started": _started(pid), "host": socket.gethostname()}


def _head(paths: RunPaths, script: str) -> None:
    began = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    head = f"attempt {attempts.current(paths) + 1} · {script} · {socket.gethostname()} · {began}"
    with paths.scheduler_log.open("a", encoding="utf-8") as stream:
        stream.write(f"--- {head} ---\n")


def ask(natives: Sequence[Native]) -> list[Answer]:
    """Return whether each job script still runs; UNKNOWN for one that was started on another host."""
    return [_answer(native, alive) for native, alive in zip(natives, liveness(natives), strict=True)]


def _answer(native: Native, alive: Liveness) -> Answer:
    if alive is Liveness.UNKNOWN:
        return Answer(alive, note=f"started on host {native['host']}: ask there whether it still runs")
    return Answer(alive)


def liveness(natives: Sequence[Native]) -> list[Liveness]:
    """Return whether each job script still runs."""
    return [_liveness(native) for native in natives]


def _liveness(native: Native) -> Liveness:
    if native["host"] != socket.gethostname():
        return Liveness.UNKNOWN
    return Liveness.ALIVE if _is_running(native) else Liveness.GONE


def _is_running(native: Native) -> bool:
    # A process id is used again after a while, but never with the same start time.
    started = _started(native["pid"])
    return started is not None and started == native["started"]


def _started(pid: int) -> int | None:
    """Return when process `pid` began, in clock ticks since boot; None for one that is gone or a zombie."""
    fields = _stat(pid)
    return None if fields is None or fields[0] == b"Z" else int(fields[19])


def _stat(pid: int) -> list[bytes] | None:
    """Return what proc(5) has in /proc/PID/stat from field 3 on: state, parent, …, start time as the 20th."""
    try:
        return (_PROC / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None


def cancel(paths: RunPaths, native: Native | None, grace_s: float) -> None:
    """Ask the job script to end (its ranks checkpoint), then end whatever of the run is left.

    Raises UserError when the run is another host's.
    """
    if native is not None:
        _refuse_another_host(paths, native)
        _end_script(paths, native, grace_s)
    _kill_what_is_left(paths)


def _refuse_another_host(paths: RunPaths, native: Native) -> None:
    if native["host"] != socket.gethostname():
        raise UserError(
            f"run {paths.id} was started on host {native['host']} and this is {socket.gethostname()}: "
            f"log in there and cancel it"
        )


def _end_script(paths: RunPaths, native: Native, grace_s: float) -> None:
    if not _is_running(native):
        return
    _signal(native["pid"], signal.SIGTERM)
    _wait_until_gone(native, grace_s)
    # The ranks first: the script's trap then still writes how the run ended.
    for pid in processes_of(paths):
        if pid != native["pid"]:
            _signal(pid, signal.SIGKILL)
    _wait_until_gone(native, _TRAP_S)


def _wait_until_gone(native: Native, limit_s: float) -> None:
    deadline = time.monotonic() + limit_s
    while _is_running(native) and time.monotonic() < deadline:
        time.sleep(_POLL_S)


def _kill_what_is_left(paths: RunPaths) -> None:
    containers.remove(paths)
    # Again until nothing is found: a process may have forked while we were looking.
    deadline = time.monotonic() + _KILL_S
    while left := processes_of(paths):
        if time.monotonic() > deadline:
            raise UserError(f"run {paths.id}: processes {left} don't end, even by KILL: they wait for a disk or a GPU")
        for pid in left:
            _signal(pid, signal.SIGKILL)
        time.sleep(_POLL_S)


def _signal(pid: int, number: int) -> None:
    # One that is gone already, or that has become another user's: the next look tells.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def processes_of(paths: RunPaths) -> list[int]:
    """Return the processes whose environment says that they belong to the run, and all that these have started."""
    mark = f"{RUN_DIR}={paths.folder}".encode()
    parents = {pid: _parent(pid) for pid in _every_process() if pid != os.getpid()}
    mine = {pid for pid in parents if mark in _environment(pid)}
    # A process may have washed the mark off, or slipped away from its parent: the launcher has then adopted it.
    while more := {pid for pid, parent in parents.items() if parent in mine} - mine:
        mine |= more
    return sorted(mine)


def _every_process() -> list[int]:
    return [int(name) for name in os.listdir(_PROC) if name.isdigit()]


def _parent(pid: int) -> int | None:
    fields = _stat(pid)
    return None if fields is None or fields[0] == b"Z" else int(fields[1])


def _environment(pid: int) -> list[bytes]:
    try:
        return (_PROC / str(pid) / "environ").read_bytes().split(b"\0")
    except OSError:
        return []
