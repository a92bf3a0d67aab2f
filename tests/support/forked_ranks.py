"""Ranks forked from one process that has imported torch: a start takes milliseconds, not three seconds of a core.

What such a rank does is what `python -W error -m trainjob.train RUN_DIR` does, from `__main__` to its exit code. Tests
that start the interpreter itself are those of the command line (tests/training/local, tests/training/verify).
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import importlib
import json
import os
import runpy
import select
import selectors
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.support import ROOT

# What every rank imports, sooner or later. The names of engines that are for one test alone are not worth their time.
_IMPORTED = (
    "torch._dynamo",
    "torch.distributed",
    "torch.nn.parallel",
    "trainjob.train.main",
    "trainjob.train.engines.ddp",
    "trainjob.train.tasks.digits_cnn",
    "trainjob.train.tasks.ffnet_toy",
)
_MESSAGE_BYTES = 1 << 18


class ForkedRank:
    """A rank, with what subprocess.Popen offers of a process."""

    def __init__(self, pid: int, ended: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._ended = ended  # gives the exit status once there is one

    def poll(self) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if not select.select([self._ended], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(f"rank {self.pid}", timeout or 0)
            self.returncode = os.waitstatus_to_exitcode(int(os.read(self._ended, 16)))
            os.close(self._ended)
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def fork_rank(run_dir: Path, folder: Path, log: int, environ: Mapping[str, str]) -> ForkedRank:
    """Return a rank of the run, begun in `folder`, that writes to `log`."""
    connection = _server()
    ended, tell = os.pipe()
    asked = {"run_dir": str(run_dir), "folder": str(folder), "environ": dict(environ)}
    socket.send_fds(connection, [json.dumps(asked).encode()], [log, tell])
    os.close(tell)
    return ForkedRank(int(connection.recv(16)), ended)


@functools.cache
def _server() -> socket.socket:
    """Return the connection to this process's server; it ends with this process."""
    mine, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    process = subprocess.Popen(
        [sys.executable, "-W", "error", "-m", "tests.support.forked_ranks", str(other.fileno())],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},  # libgomp reads it as torch is imported
        stdin=subprocess.DEVNULL,
        pass_fds=[other.fileno()],
    )
    other.close()
    atexit.register(lambda: (mine.close(), process.wait()))
    return mine


def serve(requests: socket.socket) -> None:
    """Fork a rank for each request, and tell the end of each, until whoever asks is gone."""
    told_at: dict[int, int] = {}  # process id -> where its exit status is written
    with selectors.DefaultSelector() as events:
        events.register(requests, selectors.EVENT_READ)
        while True:
            for key, _ in events.select():
                if key.fileobj is requests:
                    message, descriptors, _, _ = socket.recv_fds(requests, _MESSAGE_BYTES, 2)
                    if not message:
                        return
                    log, tell = descriptors
                    pid = os.fork()
                    if pid == 0:
                        _become_a_rank(json.loads(message), log)
                    os.close(log)
                    told_at[pid] = tell
                    events.register(os.pidfd_open(pid), selectors.EVENT_READ, pid)
                    requests.send(str(pid).encode())
                else:
                    events.unregister(key.fileobj)
                    os.close(key.fd)
                    _, status = os.waitpid(key.data, 0)
                    with contextlib.suppress(BrokenPipeError), open(told_at.pop(key.data), "w") as stream:
                        stream.write(str(status))


def _become_a_rank(asked: Any, log: int) -> None:
    """Never returns."""
    code = 1
    try:
        for stream in (1, 2):
            os.dup2(log, stream)
        os.close(log)
        os.chdir(asked["folder"])
        os.environ.clear()
        os.environ.update(asked["environ"])
        sys.argv = ["trainjob.train", asked["run_dir"]]
        folders = [folder for folder in os.environ.get("PYTHONPATH", "").split(os.pathsep) if folder]
        sys.path[:] = [asked["folder"], *folders, *sys.path[1:]]
        runpy.run_module("trainjob.train", run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
    except BaseException:  # noqa: BLE001 - the child must not go on as the server
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    for name in _IMPORTED:
        importlib.import_module(name)
    gc.freeze()
    serve(socket.socket(fileno=int(sys.argv[1])))
