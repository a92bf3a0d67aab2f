"""This machine: the job script as a process of its own, detached from the terminal."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from trainjob.contract.environment import RUN_DIR
from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths
from trainjob.submit import process
from trainjob.submit.base import Liveness, Native
from trainjob.submit.check import search_path

_PROC = Path("/proc")
_POLL_S = 0.05


def argv(script: str) -> list[str]:
    """Return the command that runs a job script here."""
    return ["bash", script]


def start(paths: RunPaths, script: str) -> Native:
    """Return process id, start time and host of the job script, which now runs by itself."""
    environment = {
        **os.environ,
        RUN_DIR: str(paths.folder),
        # The interpreter that runs us has what we were installed with; the script just says python3.
        "PATH": search_path(),
    }
    pid = process.start_detached(argv(script), folder=paths.folder, log=paths.scheduler_log, environment=environment)
    return {"pid": pid, "started": _started(pid), "host": socket.gethostname()}


def liveness(natives: Sequence[Native]) -> list[Liveness]:
    """Return whether each job script still runs; UNKNOWN for one that was started on another host."""
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
    try:
        fields = (_PROC / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    state, ticks = fields[0], int(fields[19])  # proc(5): fields 3 and 22
    return None if state == b"Z" else ticks


def cancel(paths: RunPaths, native: Native, grace_s: float) -> None:
    """Ask the job script to end (its ranks checkpoint), then end whatever of the run is left.

    Raises UserError when the run is another host's.
    """
    if native["host"] != socket.gethostname():
        raise UserError(
            f"run {paths.id} was started on host {native['host']} and this is {socket.gethostname()}: "
            f"log in there and cancel it"
        )
    if _is_running(native):
        os.kill(native["pid"], signal.SIGTERM)
        _wait_until_gone(native, grace_s)
    _kill_all(paths, native)


def _wait_until_gone(native: Native, limit_s: float) -> None:
    deadline = time.monotonic() + limit_s
    while _is_running(native) and time.monotonic() < deadline:
        time.sleep(_POLL_S)


def _kill_all(paths: RunPaths, native: Native) -> None:
    # The ranks first: the script's trap then still writes how the run ended.
    for pid in processes_of(paths):
        if pid != native["pid"]:
            _kill(pid)
    _wait_until_gone(native, 2.0)
    for pid in processes_of(paths):
        _kill(pid)


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def processes_of(paths: RunPaths) -> Iterator[int]:
    """Yield the process ids of this user whose environment says that they belong to the run."""
    mark = f"{RUN_DIR}={paths.folder}".encode()
    for entry in _PROC.iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid() and mark in _environment(entry):
            yield int(entry.name)


def _environment(entry: Path) -> list[bytes]:
    try:
        return (entry / "environ").read_bytes().split(b"\0")
    except OSError:
        return []
