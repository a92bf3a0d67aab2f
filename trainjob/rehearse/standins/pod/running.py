"""Runs the instances to their end: under a real mpirun, or as processes of our own with the same tags."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import sys
import time
from typing import Dict, List, Optional

_GRACE_S = 5.0
_asked_to_end: List[int] = []


def listen() -> None:
    """Take TERM and INT as a request to end what runs; poprun itself stays to clean up."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda received, _frame: _asked_to_end.append(received))


def was_asked_to_end() -> Optional[int]:
    """Return the signal that asked, if one did."""
    return _asked_to_end[0] if _asked_to_end else None


def run_mpirun(words: List[str]) -> int:
    """Return the exit status of mpirun."""
    return _wait(subprocess.Popen(words, stdin=subprocess.DEVNULL))


def _wait(process: "subprocess.Popen[bytes]") -> int:
    told = False
    while True:
        try:
            return process.wait(timeout=0.1)
        except subprocess.TimeoutExpired:
            if _asked_to_end and not told:
                process.send_signal(signal.SIGTERM)
                told = True


def _write(stream: object, data: bytes) -> None:
    stream.write(data)  # type: ignore[attr-defined]
    stream.flush()  # type: ignore[attr-defined]


def run_processes(program: List[str], environments: List[Dict[str, str]], only: Optional[int]) -> int:
    """Return the exit status of the first instance that failed, else 0; the others are ended when one fails."""
    processes = [
        subprocess.Popen(
            program,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        for environment in environments
    ]
    try:
        return _watch(processes, only)
    finally:
        for process in processes:
            _signal_group(process, signal.SIGKILL)


def _watch(processes: "List[subprocess.Popen[bytes]]", only: Optional[int]) -> int:
    first, kill_at = 0, None
    with selectors.DefaultSelector() as selector:
        for rank, process in enumerate(processes):
            selector.register(process.stdout, selectors.EVENT_READ, (rank, "stdout"))  # type: ignore[arg-type]
            selector.register(process.stderr, selectors.EVENT_READ, (rank, "stderr"))  # type: ignore[arg-type]
        while selector.get_map():
            for key, _ in selector.select(0.1):
                rank, name = key.data
                if not _pass_on(key.fd, rank, name, only):
                    selector.unregister(key.fileobj)
            failed = _first_failure(processes)
            first = first or failed
            if (failed or _asked_to_end) and kill_at is None:
                kill_at = time.monotonic() + _GRACE_S
                _end(processes, signal.SIGTERM)
            if kill_at is not None and time.monotonic() > kill_at:
                _end(processes, signal.SIGKILL)
                break
    codes = [process.wait() for process in processes]
    return first or next((_status(code) for code in codes if code), 0)


def _first_failure(processes: "List[subprocess.Popen[bytes]]") -> int:
    return next((_status(code) for code in (process.poll() for process in processes) if code), 0)


def _status(code: int) -> int:
    return code if code >= 0 else 128 - code


def _end(processes: "List[subprocess.Popen[bytes]]", number: int) -> None:
    for process in processes:
        if process.poll() is None:
            _signal_group(process, number)


def _signal_group(process: "subprocess.Popen[bytes]", number: int) -> None:
    try:
        os.killpg(process.pid, number)
    except ProcessLookupError:
        return


def _pass_on(descriptor: int, rank: int, name: str, only: Optional[int]) -> bool:
    block = os.read(descriptor, 65536)
    if block and only in (None, rank):
        tag = b"[1,%d]<%s>:" % (rank, name.encode())
        # As mpirun does: what arrives at once is tagged, so that a progress bar gets tags in mid-line.
        _write(getattr(sys, name).buffer, b"".join(tag + line for line in block.splitlines(keepends=True)))
    return bool(block)
