"""Runs mpirun, which starts launch.py once a rank, so that nothing of it outlives the job script.

    python -m trainjob.train.starter --parent PID RUN_DIR -- mpirun -np 4 python -m trainjob.train.launch …

mpirun that is asked to end kills its processes after a second, and one that is killed leaves them: here it is asked
by a signal that it passes on, and what it leaves is ended. Standard library only, no torch.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import List, Optional, Sequence

from trainjob.contract import exits
from trainjob.contract.paths import RunPaths
from trainjob.train import processes
from trainjob.train.guard import PASSED_ON, WATCHED, guarded

# launch.py kills a rank that does not end in its own 30 s; mpirun then needs a moment to notice.
_GRACE_S = 40.0


def main(arguments: Sequence[str]) -> int:
    """Return the exit code of the command; CHECKPOINTED where its ranks have checkpointed because they were asked."""
    asked = _parse(list(arguments))
    processes.end_with_parent(parent=asked.parent)
    code = guarded(Starter(asked.command).run)
    # launch.py has said 0 for it, which mpirun takes well.
    return exits.CHECKPOINTED if code == exits.DONE and RunPaths(Path(asked.run_dir)).requeue.exists() else code


def _parse(arguments: List[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="starter", usage="starter [--parent PID] RUN_DIR -- COMMAND…")
    parser.add_argument("run_dir", metavar="RUN_DIR")
    parser.add_argument("--parent", type=int, default=0, help="process with which to end")
    at = arguments.index("--") if "--" in arguments else len(arguments)
    command = arguments[at + 1 :]
    if not command:
        parser.error("a command is expected after --")
    return parser.parse_args(arguments[:at], argparse.Namespace(command=command))


class Starter:
    """Runs one command to its end."""

    def __init__(self, command: Sequence[str], grace_s: float = _GRACE_S) -> None:
        self._command = command
        self._grace_s = grace_s
        self._end_at: Optional[float] = None

    def run(self) -> int:
        """Return the command's exit code, once nothing that it has started is left."""
        signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)
        processes.adopt_orphans()
        try:
            return self._wait(_start(self._command))
        except OSError as error:
            sys.stderr.write("trainjob: can't start %s: %s\n" % (self._command[0], error.strerror))
            return 127 if isinstance(error, FileNotFoundError) else 126
        finally:
            processes.kill_children()

    def _wait(self, process: "subprocess.Popen[bytes]") -> int:
        while True:
            received = signal.sigtimedwait(WATCHED, self._left_s())
            codes = processes.reap()
            if process.pid in codes:
                process.returncode = codes[process.pid]
                return exits.from_wait_status(process.returncode)
            if received is not None and received.si_signo in PASSED_ON:
                self._pass_on(process, PASSED_ON[signal.Signals(received.si_signo)])
            if self._left_s() == 0.0:
                process.returncode = -signal.SIGKILL  # by kill_children
                return exits.from_wait_status(process.returncode)

    def _left_s(self) -> float:
        return 3600.0 if self._end_at is None else max(0.0, self._end_at - time.monotonic())

    def _pass_on(self, process: "subprocess.Popen[bytes]", number: int) -> None:
        if number == signal.SIGTERM:
            self._end_at = self._end_at or time.monotonic() + self._grace_s
            number = signal.SIGUSR2  # launch.py takes it for TERM
        os.kill(process.pid, number)  # Popen.send_signal would reap it, and its exit code be lost


def _start(command: Sequence[str]) -> "subprocess.Popen[bytes]":
    # A session of its own: a terminal's Ctrl-C is for the job script, which passes it on.
    return subprocess.Popen(
        list(command),
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=_in_the_child,  # noqa: PLW1509 - this process has one thread
    )


def _in_the_child() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, WATCHED)
    processes.end_with_parent()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
