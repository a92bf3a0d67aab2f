"""A guard process above the one that supervises the ranks, so that a kill -9 of either leaves nothing behind.

The kernel ends ranks together with the process that started them, but not what the ranks themselves have started.
Those orphans are adopted by the guard, which kills them.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Callable

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


def guarded(work: Callable[[], int]) -> int:
    """Fork, and return in both processes: in the child what `work` returned, in this one the child's exit code."""
    # sigwait takes signals one at a time, so none can arrive between two lines.
    signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)
    # The job script ignores USR1 up to here, because it would end a Python that is still starting.
    signal.signal(signal.SIGUSR1, signal.SIG_DFL)
    processes.adopt_orphans()
    guard = os.getpid()
    worker = os.fork()
    if worker == 0:
        processes.end_with_parent(parent=guard)
        return work()
    try:
        while True:
            received = signal.Signals(signal.sigwait(WATCHED))
            if received in PASSED_ON:
                os.kill(worker, PASSED_ON[received])
            ended = processes.reap().get(worker)
            if ended is not None:
                break
    finally:
        processes.kill_children()
    if ended.returncode < 0:
        name = signal.Signals(-ended.returncode).name
        sys.stderr.write("trainjob: %s ended the process that supervised the ranks, so the ranks are killed\n" % name)
    return exits.from_wait_status(ended.returncode)
