"""A process that has imported what many tests need, and forks itself for each request: a start takes milliseconds.

The words of a request travel in a file in memory. What was forked gets the descriptors that come with them, and a pipe
tells its process id and then its exit code, a line each.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import json
import os
import selectors
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Any

from tests.support import ROOT

Become = Callable[[Any, list[int]], None]
"""What a forked process does with a request and its descriptors, which are its own to close."""


def start(module: str, environ: Mapping[str, str], options: tuple[str, ...] = ()) -> socket.socket:
    """Return the connection to a new server, `python OPTIONS -m MODULE DESCRIPTOR`, which ends with this process."""
    mine, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    process = subprocess.Popen(
        [sys.executable, *options, "-m", module, str(other.fileno())],
        cwd=ROOT,
        env=dict(environ),
        stdin=subprocess.DEVNULL,
        pass_fds=[other.fileno()],
    )
    other.close()
    atexit.register(lambda: (mine.close(), process.wait()))
    return mine


def fork(server: socket.socket, request: Any, descriptors: list[int]) -> int:
    """Have the server fork a process; return the pipe that tells its process id and, once it has ended, its exit code.

    The caller closes the pipe. The descriptors stay open here.
    """
    file = os.memfd_create("request")
    reported, tell = os.pipe()
    try:
        os.write(file, json.dumps(request).encode("utf-8", "surrogatepass"))
        socket.send_fds(server, [b"fork"], [file, tell, *descriptors])
    except BaseException:
        os.close(reported)
        raise
    finally:
        os.close(file)
        os.close(tell)
    return reported


def serve(become: Become) -> None:
    """Fork for each request that comes by the descriptor in `sys.argv`, until whoever asks has gone.

    In what was forked, `become` ends the process.
    """
    gc.freeze()
    requests = socket.socket(fileno=int(sys.argv[1]))
    requests.set_inheritable(False)
    tells: dict[int, int] = {}  # process id -> where its exit code is told
    with selectors.DefaultSelector() as events:
        events.register(requests, selectors.EVENT_READ)
        while True:
            for key, _ in events.select():
                if key.fileobj is not requests:
                    events.unregister(key.fileobj)
                    os.close(key.fd)
                    _tell(tells[key.data], os.waitstatus_to_exitcode(os.waitpid(key.data, 0)[1]))
                    os.close(tells.pop(key.data))
                    continue
                message, descriptors, _, _ = socket.recv_fds(requests, 16, 8)
                if not message:
                    return
                pid = _fork(become, requests, descriptors)
                tells[pid] = descriptors[1]
                events.register(os.pidfd_open(pid), selectors.EVENT_READ, pid)


def _fork(become: Become, requests: socket.socket, descriptors: list[int]) -> int:
    file, tell, *others = descriptors
    os.set_inheritable(tell, False)
    pid = os.fork()
    if pid == 0:
        requests.close()
        os.lseek(file, 0, os.SEEK_SET)
        with os.fdopen(file, "rb") as stream:
            request = json.loads(stream.read().decode("utf-8", "surrogatepass"))
        become(request, others)
        os._exit(1)
    for descriptor in (file, *others):
        os.close(descriptor)
    _tell(tell, pid)
    return pid


def _tell(descriptor: int, number: int) -> None:
    with contextlib.suppress(BrokenPipeError):  # who asked has gone
        os.write(descriptor, f"{number}\n".encode())
