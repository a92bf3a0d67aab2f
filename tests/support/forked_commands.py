"""`trainjob` in a process forked from one that has imported its modules: a call takes a quarter of the time.

From `main` on it does what the installed program does, in a process, environment and folder of its own. How that
program starts is tested in tests/scripts/cli, and what `Here.start` starts is the program.
"""

from __future__ import annotations

import functools
import importlib
import io
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

from tests.support import ROOT, forking

# What an interpreter, or a library, reads as it is started or imported: with another value the program itself is run.
_READ_AT_START = ("PYTHON", "LANG", "LC_", "LD_", "TZ", "TMPDIR", "TERMINAL_", "FORCE_", "NO_COLOR", "_TYPER")
# What runs as a program of its own, and what imports numpy, which has threads that a fork would lose.
_LEFT_OUT = ("train", "launch", "data", "check.interpreter")


def run(words: Sequence[str], folder: Path, environ: Mapping[str, str], limit_s: float) -> tuple[int, str, str]:
    """Return the exit code of `trainjob WORDS`, and what it printed to standard output and to standard error."""
    pipes = [os.pipe() for _ in range(2)]
    try:
        request = [list(words), str(folder), dict(environ), _umask()]
        reported = forking.fork(_server()[0], request, [written for _, written in pipes])
    finally:
        for _, written in pipes:
            os.close(written)
    out, err, ids = _contents([*(read for read, _ in pipes), reported], time.monotonic() + limit_s)
    return int(ids.split()[1]), _text(out), _text(err)


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
    """Return what comes out of pipes until all are closed; of the last, two lines: a process id and its exit code."""
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
                if not block or (key.fd == read[-1] and contents[key.fd].count(b"\n") == 2):
                    events.unregister(key.fd)
                    os.close(key.fd)
    return list(contents.values())


@functools.cache
def _server() -> tuple[socket.socket, dict[str, str]]:
    """Return the connection to this process's server, and the environment it was started with."""
    environ = dict(os.environ)
    return forking.start("tests.support.forked_commands", environ), environ


def _become(request: Any, descriptors: list[int]) -> None:
    """Be the program: its streams, folder, environment and words. Raises SystemExit."""
    for stream, descriptor in enumerate(descriptors, 1):
        os.dup2(descriptor, stream)
        os.close(descriptor)
    # Not those of the server: a stream knows from its beginning whether it is a pipe.
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115 - for as long as the process lives, as the next one
    sys.stderr = open(2, "w", 1, errors="backslashreplace", closefd=False)  # noqa: SIM115
    words, folder, environ, umask = request
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
    forking.serve(_become)
