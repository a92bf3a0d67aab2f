"""`trainjob` in a process forked from one that has imported its modules: a call takes a quarter of the time.

From `main` on it does what the installed program does, in a process, environment and folder of its own. How that
program starts is tested in tests/scripts/cli, and what `Here.start` starts is the program.
"""

from __future__ import annotations

import atexit
import functools
import gc
import importlib
import io
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.support import ROOT

# What an interpreter, or a library, reads as it is started or imported: with another value the program itself is run.
_READ_AT_START = ("PYTHON", "LANG", "LC_", "LD_", "TZ", "TMPDIR", "TERMINAL_", "FORCE_", "NO_COLOR", "_TYPER")
# What runs as a program of its own, and what imports numpy, which has threads that a fork would lose.
_LEFT_OUT = ("train", "launch", "data", "rehearse.standins", "check.interpreter")


def run(words: Sequence[str], folder: Path, environ: Mapping[str, str], limit_s: float) -> tuple[int, str, str]:
    """Return the exit code of `trainjob WORDS`, and what it printed to standard output and to standard error."""
    request = os.memfd_create("request")
    os.write(request, json.dumps([list(words), str(folder), dict(environ), _umask()]).encode("utf-8", "surrogatepass"))
    pipes = [os.pipe() for _ in range(3)]
    try:
        socket.send_fds(_server()[0], [b"run"], [request, *(written for _, written in pipes)])
    finally:
        for descriptor in (request, *(written for _, written in pipes)):
            os.close(descriptor)
    read = [read for read, _ in pipes]
    out, err, told = _contents(read, time.monotonic() + limit_s)
    return int(told.split()[1]), _text(out), _text(err)


def can_run(environ: Mapping[str, str]) -> bool:
    """Return whether a process with this environment would start as the one that has the modules did."""
    _, started = _server()
    names = {name for name in (*environ, *started) if name.startswith(_READ_AT_START)}
    return all(environ.get(name) == started.get(name) for name in names)


def _text(printed: bytes) -> str:
    """Return what was printed as `subprocess` does: with line feeds for every kind of line end."""
    return io.TextIOWrapper(io.BytesIO(printed), "utf-8").read()


def _umask() -> int:
    now = os.umask(0)
    os.umask(now)
    return now


def _contents(read: list[int], deadline: float) -> list[bytes]:
    """Return what comes out of pipes until all are closed; of the last one, a line. It says which process to kill."""
    contents = dict.fromkeys(read, b"")
    with selectors.DefaultSelector() as events:
        for descriptor in read:
            events.register(descriptor, selectors.EVENT_READ)
        while events.get_map():
            ready = events.select(max(0.0, deadline - time.monotonic()))
            if not ready and time.monotonic() > deadline:
                os.kill(int(contents[read[-1]].split()[0]), signal.SIGKILL)
                raise subprocess.TimeoutExpired("trainjob", 0)
            for key, _ in ready:
                block = os.read(key.fd, 1 << 16)
                contents[key.fd] += block
                if not block or (key.fd == read[-1] and contents[key.fd].endswith(b"\n")):
                    events.unregister(key.fd)
                    os.close(key.fd)
    return list(contents.values())


@functools.cache
def _server() -> tuple[socket.socket, dict[str, str]]:
    """Return the connection to this process's server, which ends with this process, and how it was started."""
    mine, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    environ = dict(os.environ)
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.forked_commands", str(other.fileno())],
        cwd=ROOT,
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        pass_fds=[other.fileno()],
    )
    other.close()
    atexit.register(lambda: (mine.close(), process.wait()))
    return mine, environ


def serve(requests: socket.socket) -> None:
    """Fork a process for each request, and tell how each ended. Return in those, and once whoever asks is gone."""
    told_at: dict[int, int] = {}  # process id -> where its id and its exit code are written
    events = selectors.DefaultSelector()
    events.register(requests, selectors.EVENT_READ)
    while True:
        for key, _ in events.select():
            if key.fileobj is not requests:
                events.unregister(key.fileobj)
                os.close(key.fd)
                code = os.waitstatus_to_exitcode(os.waitpid(key.data, 0)[1])
                _tell(told_at[key.data], f" {code}\n")
                os.close(told_at.pop(key.data))
                continue
            message, descriptors, _, _ = socket.recv_fds(requests, 16, 4)
            if not message:
                return
            os.set_inheritable(descriptors[3], False)
            pid = os.fork()
            if pid == 0:
                requests.close()
                _become(*descriptors[:3])
                return
            for descriptor in descriptors[:3]:
                os.close(descriptor)
            told_at[pid] = descriptors[3]
            _tell(descriptors[3], str(pid))
            events.register(os.pidfd_open(pid), selectors.EVENT_READ, pid)


def _tell(descriptor: int, text: str) -> None:
    try:
        os.write(descriptor, text.encode())
    except BrokenPipeError:
        return  # who asked has gone


def _become(request: int, out: int, err: int) -> None:
    """Be the program: its streams, folder, environment and words. Raises SystemExit."""
    for stream, descriptor in ((1, out), (2, err)):
        os.dup2(descriptor, stream)
        os.close(descriptor)
    # Not those of the server: a stream knows from its beginning whether it is a pipe.
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115 - for as long as the process lives, as the next one
    sys.stderr = open(2, "w", 1, errors="backslashreplace", closefd=False)  # noqa: SIM115
    os.lseek(request, 0, os.SEEK_SET)
    with os.fdopen(request, "rb") as file:
        words, folder, environ, umask = json.loads(file.read().decode("utf-8", "surrogatepass"))
    os.umask(umask)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environ)
    program = Path(sys.executable).parent / "trainjob"
    sys.argv, sys.path[0] = [str(program), *words], str(program.parent)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    from trainjob.cli.main import main

    main()


def _import_all() -> None:
    names = [
        ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for path in sorted((ROOT / "trainjob").rglob("*.py"))
        if path.stem not in ("__init__", "__main__")
    ]
    for name in names:
        if not name.removeprefix("trainjob.").startswith(_LEFT_OUT):
            importlib.import_module(name)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _import_all()
    threads = os.listdir("/proc/self/task")
    if len(threads) > 1 or "numpy" in sys.modules:
        sys.exit("a process with threads can't be forked: some module of the command line has started one")
    gc.freeze()
    connection: Any = socket.socket(fileno=int(sys.argv[1]))
    connection.set_inheritable(False)
    serve(connection)
