"""Inside a container: how a rank there learns that nobody outside watches over it any more.

An engine's daemon starts containers, so no kernel ends one with the process that has asked for it. The launcher
outside holds the container's standard input open, and its end, however the launcher ended, is the word.
"""

from __future__ import annotations

import os
import signal

_BYTES = 4096


def end_with_standard_input() -> None:
    """Have a process of its own end everything in this container when the standard input does.

    Only for the first process of a container, where "everything" is what the container holds.
    """
    if os.getpid() != 1:
        return
    if os.fork() == 0:
        _watch()


def _watch() -> None:
    while os.read(0, _BYTES):
        continue
    # All but this process and the first one, which then finds its child gone.
    os.kill(-1, signal.SIGKILL)
    os._exit(0)
