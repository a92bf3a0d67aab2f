"""Writes the stacks of all threads when the launcher asks for them, and notes that the script has ended.

Python's own faulthandler answers the launcher's signal, so also a process that hangs in C is seen. Notes go into the
same file. A rank that another launcher has started on its node leaves that launcher's log for its own.
"""

from __future__ import annotations

import os
import sys

from . import is_of_handler

_descriptor = -1


def begin(path: str) -> None:
    """Register with the launcher, whose file is `path`. Without it, the rank only has no stacks to show."""
    try:  # noqa: SIM105 - contextlib would be one more module for each Python that starts
        _register(path)
    except Exception:  # noqa: BLE001, S110 - as above
        pass
    try:  # noqa: SIM105
        _print_into_own_log(os.environ["TRAINJOB_LAUNCHER_LOG"])
    except Exception:  # noqa: BLE001, S110 - no launcher has started it, or it prints where the launcher does
        pass


def note(line: str) -> None:
    """Append a line to the launcher's file."""
    try:
        os.write(_descriptor, ("%s\n" % line).encode())
    except OSError as error:
        if is_of_handler(error):
            raise


def _register(path: str) -> None:
    global _descriptor  # noqa: PLW0603 - a process has one
    import atexit
    import faulthandler
    import fcntl
    import signal

    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND)
    try:
        # A high number, which a program that closes and reopens its files does not use.
        _descriptor = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 900)
    finally:
        os.close(descriptor)
    faulthandler.register(signal.SIGRTMAX - 3, file=_descriptor, all_threads=True)
    # The first to register is called last, when the program's own last words are over.
    atexit.register(_note_the_end)


def _note_the_end() -> None:
    """Note that the script has ended without an exception: what kills the process from now on is not its own fault."""
    if getattr(sys, "last_type", None) is None:
        note("ended %d" % os.getpid())


def _print_into_own_log(launcher_log: str) -> None:
    """Send what this rank prints to its own log, unless the launcher or the user has sent it elsewhere."""
    rank, local_rank = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
    folder, name = os.path.split(launcher_log)
    # The launcher of another world, or one that numbers its nodes itself, keeps its ranks: a log has one writer.
    if local_rank == 0 or name != "rank-%04d.log" % (rank - local_rank):
        return
    log = os.stat(launcher_log)
    printing = [number for number in (1, 2) if os.path.samestat(os.fstat(number), log)]
    if printing:
        own = os.open(os.path.join(folder, "rank-%04d.log" % rank), os.O_WRONLY | os.O_APPEND)
        for number in printing:
            os.dup2(own, number)
        os.close(own)
