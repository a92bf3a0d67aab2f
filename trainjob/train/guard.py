"""A process above the one that watches the ranks, so that a kill -9 of either leaves nothing behind.

Ranks end with the process that started them, by the kernel's word; what they have started themselves does
not. Those orphans come to the next process above that adopts them: the guard, which ends them.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Callable

from trainjob.contract import exits
from trainjob.train import processes

PASSED_ON = {
    signal.SIGTERM: signal.SIGTERM,
    signal.SIGUSR1: signal.SIGUSR1,
    # Asked to end, mpirun gives its processes a second; this one it passes on, and waits: see starter.py.
    signal.SIGUSR2: signal.SIGTERM,
    signal.SIGINT: signal.SIGTERM,
    signal.SIGHUP: signal.SIGTERM,
}
WATCHED = {signal.SIGCHLD, *PASSED_ON}


def guarded(work: Callable[[], int]) -> int:
    """Return, twice, an exit code: in a new process what `work` returns, in this one what became of that process."""
    # Signals are taken by sigtimedwait, one at a time, so that none can arrive between two lines.
    signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)
    # A job script has USR1 ignored until here: sent while Python starts, it would end this process.
    signal.signal(signal.SIGUSR1, signal.SIG_DFL)
    processes.adopt_orphans()
    guard = os.getpid()
    worker = os.fork()
    if worker == 0:
        processes.end_with_parent(parent=guard)
        return work()
    try:
        return _watch(worker)
    finally:
        processes.kill_children()


def _watch(worker: int) -> int:
    while True:
        received = signal.Signals(signal.sigwait(WATCHED))
        if received in PASSED_ON:
            os.kill(worker, PASSED_ON[received])
        codes = processes.reap()
        if worker in codes:
            return _code(codes[worker])


def _code(returncode: int) -> int:
    if returncode < 0:
        name = signal.Signals(-returncode).name
        sys.stderr.write("trainjob: the process that watched the ranks was ended by %s: they are ended, too\n" % name)
    return exits.from_wait_status(returncode)
