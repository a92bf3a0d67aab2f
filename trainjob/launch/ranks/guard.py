"""A guard process above the one that supervises the ranks, so that a kill -9 of either leaves nothing behind.

The kernel ends ranks together with the process that started them, but not what the ranks themselves have started.
Those orphans are adopted by the guard, which kills them.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import stat
import sys
from typing import Callable, Optional

from trainjob.contract import exits
from trainjob.launch import processes

PASSED_ON = {
    signal.SIGTERM: signal.SIGTERM,
    signal.SIGUSR1: signal.SIGUSR1,
    # mpirun gives its processes one second after TERM, but passes USR2 on and waits: see starter.py.
    signal.SIGUSR2: signal.SIGTERM,
    signal.SIGINT: signal.SIGTERM,
    signal.SIGHUP: signal.SIGTERM,
}
WATCHED = {signal.SIGCHLD, *PASSED_ON}


def in_child(ends_by: int = signal.SIGTERM, usr1: Optional[signal.Handlers] = None) -> None:
    """Give a new process the signals of a program that a shell starts, and have it end with its parent, by `ends_by`.

    `usr1`: what USR1 does until it has a handler. A background job of a shell starts with SIGINT ignored, and would
    pass that on to all its descendants; a shell can't trap what was ignored when it began.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    if usr1 is not None:
        signal.signal(signal.SIGUSR1, usr1)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, WATCHED)
    processes.end_with_parent(ends_by)


def guarded(
    work: Callable[[], int],
    requests: Optional[int] = None,
    note: Callable[[signal.struct_siginfo], None] = lambda _: None,
) -> int:
    """Fork, and return in both processes: in the child what `work` returned, in this one the child's exit code.

    What can be read from the descriptor `requests` is a request to stop, as USR1 is. `note` is called with each signal
    that has been passed on, in this process.
    """
    # sigwait takes signals one at a time, so none can arrive between two lines.
    signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)
    # The job script ignores USR1 up to here, because it would end a Python that is still starting. Whoever started the
    # script may ignore SIGCHLD: then nobody hears of a rank's end, and its exit code is lost.
    for ignored in (signal.SIGUSR1, signal.SIGCHLD):
        signal.signal(ignored, signal.SIG_DFL)
    processes.adopt_orphans()
    guard = os.getpid()
    worker = os.fork()
    if worker == 0:
        processes.end_with_parent(parent=guard)
        return work()
    if requests is not None:
        import threading

        threading.Thread(target=_hand_on, args=(requests, worker), daemon=True).start()
    try:
        while True:
            received = signal.sigwaitinfo(WATCHED)
            number = signal.Signals(received.si_signo)
            if number in PASSED_ON:
                os.kill(worker, PASSED_ON[number])
                note(received)
            ended = processes.reap().get(worker)
            if ended is not None:
                break
    finally:
        processes.kill_children()
    if ended.returncode < 0:
        name = signal.Signals(-ended.returncode).name
        sys.stderr.write("trainjob: %s ended the process that supervised the ranks, so the ranks are killed\n" % name)
    return exits.from_wait_status(ended.returncode)


def requests_by_input() -> Optional[int]:
    """Return a descriptor of this process's input, if a job script may ask by it, and have none from now on.

    srun hands its own input on by a pipe or a socket.
    """
    try:
        kind = os.fstat(0).st_mode
    except OSError:
        return None
    if not (stat.S_ISFIFO(kind) or stat.S_ISSOCK(kind)):
        return None
    requests = os.dup(0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    return requests


def is_closed(requests: Optional[int]) -> bool:
    """Return whether no request can come by that descriptor: srun has no input to hand on, and has closed its end."""
    if requests is None:
        return True
    looked = select.poll()
    looked.register(requests, select.POLLRDHUP)
    return bool(looked.poll(0))


def _hand_on(requests: int, worker: int) -> None:
    with contextlib.suppress(OSError):  # it is closed, or the worker has ended
        while os.read(requests, 64):
            os.kill(worker, signal.SIGUSR1)
