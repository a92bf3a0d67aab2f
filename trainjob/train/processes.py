"""Linux process control that the standard library leaves out: nothing of a run may outlive it."""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import time
from typing import Dict, List

# linux/prctl.h
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(%d, %d)" % (option, value))


def end_with_parent(signal_number: int = signal.SIGTERM, parent: int = 0) -> None:
    """Have the kernel send this process `signal_number` when its parent ends, however it ends.

    Who knows the `parent` gives its id: it may have ended before this process could ask for it.
    """
    expected = parent or os.getppid()
    _prctl(_PR_SET_PDEATHSIG, signal_number)
    if os.getppid() != expected:
        os.kill(os.getpid(), signal_number)


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent ends, so that none can slip away."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def children() -> List[int]:
    """Return the process ids of this process's direct children, adopted ones included."""
    me = os.getpid()
    return [pid for pid in _all_pids() if _parent(pid) == me]


def _all_pids() -> List[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _parent(pid: int) -> int:
    try:
        with open("/proc/%d/stat" % pid, "rb") as stream:
            # The command's name stands in parentheses and may hold anything, spaces included.
            return int(stream.read().rpartition(b")")[2].split()[1])
    except (OSError, IndexError):
        return -1


def hears(pid: int, signal_number: int) -> bool:
    """Return whether the process has a handler for a signal, or takes it by waiting for it."""
    try:
        with open("/proc/%d/status" % pid) as stream:
            fields = dict(line.split(":", 1) for line in stream if ":" in line)
        heard = int(fields["SigCgt"], 16) | int(fields["SigBlk"], 16)
    except (OSError, KeyError, ValueError):
        return False
    return bool(heard >> (signal_number - 1) & 1)


def kill_children(timeout_s: float = 10.0) -> None:
    """Kill and reap every child until none is left: grandchildren become children as theirs die."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        left = children()
        if not left:
            return
        for pid in left:
            _kill(pid)
        reap()
        time.sleep(0.01)


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except OSError as error:
        if error.errno != errno.ESRCH:
            raise


def reap() -> Dict[int, int]:
    """Return exit codes by process id of the children that have ended; a signal n counts as -n."""
    ended: Dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if pid == 0:
            return ended
        ended[pid] = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
