"""Linux process control that the standard library lacks: no process may outlive its run."""

from __future__ import annotations

import contextlib
import os
import signal
from typing import Dict, Iterator, List, NamedTuple, Optional, Sequence

from trainjob.contract import clock

# linux/prctl.h
_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36
_INPUT_BYTES = 4096
# The name of Podman's monitor of a container.
_MONITOR = b"conmon"
_KILLED_WITHIN_S = 10.0

_CLOCK_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class Process(NamedTuple):
    """One process as /proc shows it. `cpu_s` includes that of its children which have ended."""

    pid: int
    parent: int
    session: int
    state: str
    cpu_s: float
    resident_bytes: int


class Ended(NamedTuple):
    """The end of a child: its exit code, or −n if signal n ended it, and the most memory that it held.

    `pid` is 0 for one that could not be started.
    """

    returncode: int
    peak_rss_bytes: int
    pid: int = 0


def _prctl(option: int, value: int) -> None:
    import ctypes  # needed only by some callers

    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(%d, %d)" % (option, value))


def end_with_parent(signal_number: int = signal.SIGTERM, parent: int = 0) -> None:
    """Have the kernel send this process `signal_number` when its parent ends, however it ends.

    A caller that knows the `parent` passes its id: it may have ended before this call.
    """
    expected = parent or os.getppid()
    _prctl(_PR_SET_PDEATHSIG, signal_number)
    if os.getppid() != expected:
        os.kill(os.getpid(), signal_number)


def end_with_standard_input() -> None:
    """Fork a process that kills everything in this container when standard input closes.

    A container is started by its engine's daemon, so the kernel can't end it with the process that requested it.
    Instead the launcher outside holds the container's standard input open for as long as it lives. Does nothing in any
    other process than the first of a container, because it kills every process that it can see.
    """
    if os.getpid() != 1 or os.fork() != 0:
        return
    while os.read(0, _INPUT_BYTES):
        continue
    # All but this process and the first one, which then sees that its child has ended.
    os.kill(-1, signal.SIGKILL)
    os._exit(0)


def take_name(name: str) -> None:
    """Set the `name` (at most 15 characters) under which tools show this process: its command line is another's."""
    import ctypes

    text = ctypes.create_string_buffer(name.encode())
    _prctl(_PR_SET_NAME, ctypes.addressof(text))


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent ends, so that none escapes."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def children() -> List[int]:
    """Return the ids of this process's direct children, including adopted ones."""
    return [process.pid for process in _all() if process.parent == os.getpid()]


def children_of(pid: int) -> List[int]:
    """Return the ids of a process's direct children, without a look at any other process."""
    found: List[int] = []
    with contextlib.suppress(OSError):
        for thread in os.listdir("/proc/%d/task" % pid):
            with open("/proc/%d/task/%s/children" % (pid, thread)) as stream:
                found += [int(word) for word in stream.read().split()]
    return found


def _all() -> Iterator[Process]:
    return filter(None, (look(int(name)) for name in os.listdir("/proc") if name.isdigit()))


def look(pid: int) -> Optional[Process]:
    """Return the facts in /proc about a process; None once it is gone."""
    try:
        with open("/proc/%d/stat" % pid, "rb") as stream:
            # The command's name is in parentheses and may contain anything, spaces included.
            fields = stream.read().rpartition(b")")[2].split()
        ticks = sum(int(field) for field in fields[11:15])
        return Process(
            pid=pid,
            parent=int(fields[1]),
            session=int(fields[3]),
            state=fields[0].decode(),
            cpu_s=ticks / _CLOCK_TICKS,
            resident_bytes=int(fields[21]) * _PAGE_BYTES,
        )
    except (OSError, IndexError):
        return None


def trees(roots: Sequence[int]) -> Dict[int, List[Process]]:
    """Return each root's process and all its descendants, with those that left the tree but kept its session."""
    every = {process.pid: process for process in _all()}
    found: Dict[int, List[Process]] = {root: [] for root in roots}
    for process in every.values():
        above: Optional[Process] = process
        while above is not None and above.pid not in found:
            above = every.get(above.parent)
        root = above.pid if above is not None else process.session
        if root in found:
            found[root].append(process)
    return {root: sorted(found[root]) for root in roots if root in every}


def hears(pid: int, signal_number: int) -> bool:
    """Return whether the process has a handler for a signal, or blocks it to wait for it."""
    return bool((_signals(pid, "SigCgt") | _signals(pid, "SigBlk")) >> (signal_number - 1) & 1)


def catches(pid: int, signal_number: int) -> bool:
    """Return whether the process has a handler for a signal."""
    return bool(_signals(pid, "SigCgt") >> (signal_number - 1) & 1)


def ignores(pid: int, signal_number: int) -> bool:
    """Return whether the process ignores a signal, as a launcher does until it can handle USR1."""
    return bool(_signals(pid, "SigIgn") >> (signal_number - 1) & 1)


def _signals(pid: int, field: str) -> int:
    try:
        with open("/proc/%d/status" % pid) as stream:
            return int(next(line for line in stream if line.startswith(field)).split()[1], 16)
    except (OSError, StopIteration, ValueError):
        return 0


def kill_children() -> None:
    """Kill and reap every child until none is left: grandchildren become children as their parents die.

    Podman's monitor of a container, which a killed `podman run` leaves behind, is only waited for: it ends by itself
    once it has removed its container, which no other program would.
    """
    deadline = clock.monotonic() + _KILLED_WITHIN_S
    while clock.monotonic() < deadline:
        left = children()
        if not left:
            return
        for pid in left:
            with contextlib.suppress(OSError), open("/proc/%d/comm" % pid, "rb") as stream:
                if stream.read().rstrip(b"\n") != _MONITOR:
                    os.kill(pid, signal.SIGKILL)
        reap()
        clock.sleep(0.01)


def reap() -> Dict[int, Ended]:
    """Return how the children that have ended so far ended, by process id."""
    ended: Dict[int, Ended] = {}
    while True:
        try:
            pid, status, usage = os.wait4(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if pid == 0:
            return ended
        code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
        ended[pid] = Ended(code, usage.ru_maxrss * 1024, pid)
