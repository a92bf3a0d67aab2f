"""Runs the instances until they end: under a real mpirun, or as child processes with the same output tags."""

from __future__ import annotations

import os
import re
import selectors
import signal
import subprocess
import sys
import time
from typing import Callable, Dict, List, Optional

_GRACE_S = 5.0
_TAG = re.compile(rb"(\[\d+,\d+\]<(?:stdout|stderr|stddiag)>:)")
_asked_to_end: List[int] = []


class TaggedLines:
    """Puts the pieces of a line together: mpirun tags each write, so that `print(a, b)` may arrive in pieces."""

    def __init__(self, write: Callable[[bytes], object]) -> None:
        self._write = write
        self._open: Dict[bytes, bytes] = {}  # what has no line end yet, by tag
        self._rest = b""

    def add(self, block: bytes) -> None:
        """Take what mpirun printed; lines that are whole are written."""
        *whole, self._rest = (self._rest + block).split(b"\n")
        for line in whole:
            last = self._take(line)
            if last:
                self._write(last + self._open.pop(last) + b"\n")

    def add_of(self, tag: bytes, block: bytes) -> None:
        """Take what one instance printed, without tags."""
        *whole, self._open[tag] = (self._open.get(tag, b"") + block).split(b"\n")
        for line in whole:
            self._write(tag + line + b"\n")

    def finish(self) -> None:
        """Write what never got a line end, each instance's on a line of its own."""
        if self._rest:
            self._take(self._rest)
            self._rest = b""
        for tag, text in self._open.items():
            if text:
                self._write(tag + text + b"\n")
        self._open.clear()

    def _take(self, line: bytes) -> bytes:
        """Keep the pieces of a line, and return the last piece's tag; a line without tags is mpirun's own."""
        own, *pieces = _TAG.split(line)
        if own or not pieces:
            self._write(own + b"\n")
        for tag, text in zip(pieces[::2], pieces[1::2]):
            self._open[tag] = self._open.get(tag, b"") + text
        return pieces[-2] if pieces else b""


def listen() -> None:
    """Treat TERM and INT as a request to end the instances; poprun itself stays to clean up."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda received, _frame: _asked_to_end.append(received))


def was_asked_to_end() -> Optional[int]:
    """Return the signal received, if any."""
    return _asked_to_end[0] if _asked_to_end else None


def run_mpirun(words: List[str]) -> int:
    """Return the exit status of mpirun, whose output is passed on in whole lines."""
    process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    lines = {"stdout": _to("stdout"), "stderr": _to("stderr")}
    has_passed_on, code = False, None
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ, "stdout")  # type: ignore[arg-type]
        selector.register(process.stderr, selectors.EVENT_READ, "stderr")  # type: ignore[arg-type]
        while selector.get_map():
            ready = selector.select(0.1)
            for key, _ in ready:
                block = os.read(key.fd, 65536)
                lines[key.data].add(block)
                if not block:
                    selector.unregister(key.fileobj)
            if _asked_to_end and not has_passed_on:
                process.send_signal(signal.SIGTERM)
                has_passed_on = True
            code = process.poll()
            if code is not None and not ready:
                break  # what an instance has left running holds the pipe open
    for one in lines.values():
        one.finish()
    return process.wait() if code is None else code


def _to(name: str) -> TaggedLines:
    def write(line: bytes) -> None:
        stream = getattr(sys, name).buffer
        stream.write(line)
        stream.flush()

    return TaggedLines(write)


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
    lines = {"stdout": _to("stdout"), "stderr": _to("stderr")}
    with selectors.DefaultSelector() as selector:
        for rank, process in enumerate(processes):
            selector.register(process.stdout, selectors.EVENT_READ, (rank, "stdout"))  # type: ignore[arg-type]
            selector.register(process.stderr, selectors.EVENT_READ, (rank, "stderr"))  # type: ignore[arg-type]
        while selector.get_map():
            for key, _ in selector.select(0.1):
                rank, name = key.data
                if not _pass_on(key.fd, rank, name, lines[name] if only in (None, rank) else None):
                    selector.unregister(key.fileobj)
            failed = next((_status(code) for code in (process.poll() for process in processes) if code), 0)
            first = first or failed
            if (failed or _asked_to_end) and kill_at is None:
                kill_at = time.monotonic() + _GRACE_S
                _end(processes, signal.SIGTERM)
            if kill_at is not None and time.monotonic() > kill_at:
                _end(processes, signal.SIGKILL)
                break
    for one in lines.values():
        one.finish()
    codes = [process.wait() for process in processes]
    return first or next((_status(code) for code in codes if code), 0)


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


def _pass_on(descriptor: int, rank: int, name: str, lines: Optional[TaggedLines]) -> bool:
    block = os.read(descriptor, 65536)
    if block and lines is not None:
        lines.add_of(b"[1,%d]<%s>:" % (rank, name.encode()), block)
    return bool(block)
