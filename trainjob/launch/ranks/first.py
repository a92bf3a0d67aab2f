"""The first process of a container: runs a command, and stays until everything that it started has ended.

    python3 -m trainjob.launch.ranks.first trainjob submit --instances 2

A container ends with its first process, but a submitted run outlives the command that submitted it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import Optional, Sequence

from trainjob.contract import exits
from trainjob.launch import processes
from trainjob.launch.ranks.guard import PASSED_ON, WATCHED


def main(command: Sequence[str]) -> int:
    """Return the command's exit code once none of its descendants is left. Signals are passed on to all of them."""
    signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)
    processes.adopt_orphans()
    try:
        started = subprocess.Popen(
            list(command),
            preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_UNBLOCK, WATCHED),  # noqa: PLW1509 - one thread
        )
    except OSError as error:
        sys.stderr.write("trainjob: can't start %s: %s\n" % (command[0], error.strerror))
        return exits.of_no_start(error)
    code: Optional[int] = None
    while True:
        ended = processes.reap()
        if started.pid in ended:
            code = started.returncode = ended[started.pid].returncode
        if code is not None and not processes.children():
            return exits.from_wait_status(code)
        received = signal.Signals(signal.sigwait(WATCHED))
        if received in PASSED_ON:
            for pid in processes.children():
                os.kill(pid, received)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
