"""Ranks forked from one process that has imported torch: a start takes milliseconds, not three seconds of a core.

What such a rank does is what `python -W error -m trainjob.train RUN_DIR` does, from `__main__` to its exit code. Tests
that start the interpreter itself are those of the command line (tests/training/local, tests/training/verify).
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import io
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.support import forking

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


class ForkedRank:
    """A rank, with what subprocess.Popen offers of a process."""

    def __init__(self, pid: int, reported: io.FileIO) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._reported = reported  # has the exit code once there is one

    def poll(self) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if not select.select([self._reported], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(f"rank {self.pid}", timeout or 0)
            self.returncode = int(self._reported.readline())
            self._reported.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def fork_rank(run_dir: Path, folder: Path, log: int, environ: Mapping[str, str]) -> ForkedRank:
    """Return a rank of the run, begun in `folder`, that writes to `log`."""
    request = {"run_dir": str(run_dir), "folder": str(folder), "environ": dict(environ)}
    reported = io.FileIO(forking.fork(_server(), request, [log]))  # without a buffer: `wait` asks whether more has come
    return ForkedRank(int(reported.readline()), reported)


@functools.cache
def _server() -> socket.socket:
    # libgomp reads the number of threads as torch is imported.
    return forking.start("tests.support.forked_ranks", {**os.environ, "OMP_NUM_THREADS": "1"}, ("-W", "error"))


def _become_a_rank(request: Any, descriptors: list[int]) -> None:
    """Never returns."""
    code = 1
    try:
        for stream in (1, 2):
            os.dup2(descriptors[0], stream)
        os.close(descriptors[0])
        os.chdir(request["folder"])
        os.environ.clear()
        os.environ.update(request["environ"])
        sys.argv = ["trainjob.train", request["run_dir"]]
        folders = [folder for folder in os.environ.get("PYTHONPATH", "").split(os.pathsep) if folder]
        sys.path[:] = [request["folder"], *folders, *sys.path[1:]]
        runpy.run_module("trainjob.train", run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
    except BaseException:  # noqa: BLE001 - the child must not continue as the server
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    for name in _IMPORTED:
        importlib.import_module(name)
    forking.serve(_become_a_rank)
