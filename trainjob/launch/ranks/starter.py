"""Runs mpirun, which starts the launcher once per rank, so that none of its processes outlives the job script.

    python -m trainjob.launch.ranks.starter --parent PID RUN_DIR -- mpirun -np 4 python -m trainjob.launch …

On TERM, mpirun kills its processes after one second; when it is killed itself, it leaves them running. So this process
sends it a signal that it passes on, and kills all that it leaves behind.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Optional, Sequence

from trainjob.contract import clock, environment, exits
from trainjob.contract.paths import RunPaths
from trainjob.launch import processes
from trainjob.launch.options import GRACE_S
from trainjob.launch.ranks.guard import PASSED_ON, WATCHED, guarded, in_child
from trainjob.records import attempts

# The launcher kills a rank that has not ended after its grace period; mpirun needs a moment to notice.
_MORE_S = 10.0


def main(arguments: Sequence[str]) -> int:
    """Return the exit code of the command; CHECKPOINTED if its ranks wrote a checkpoint on request."""
    parser = argparse.ArgumentParser(prog="starter", usage="starter [--parent PID] RUN_DIR -- COMMAND…")
    parser.add_argument("run_dir", metavar="RUN_DIR")
    parser.add_argument("--parent", type=int, default=0, help="process with which to end")
    parser.add_argument("--grace-s", type=float, default=GRACE_S, help="seconds that ranks have between TERM and KILL")
    at = arguments.index("--") if "--" in arguments else len(arguments)
    command = arguments[at + 1 :]
    if not command:
        parser.error("a command is expected after --")
    options = parser.parse_args(arguments[:at])
    processes.end_with_parent(parent=options.parent)
    code, paths = guarded(Starter(command, options.grace_s + _MORE_S).run), RunPaths(Path(options.run_dir))
    # The launcher returned 0 for CHECKPOINTED, because mpirun would take any other code for a failure.
    if code == exits.DONE and paths.requeue.exists():
        code = exits.CHECKPOINTED
    attempts.leave_end_mark(paths, int(os.environ.get(environment.ATTEMPT, "1")), None, code)
    return code


class Starter:
    """Runs one command to its end."""

    def __init__(self, command: Sequence[str], grace_s: float) -> None:
        self._command = command
        self._grace_s = grace_s
        self._end_at: Optional[float] = None

    def run(self) -> int:
        """Return the command's exit code, once nothing that it started is left."""
        signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)
        processes.adopt_orphans()
        try:
            # In its own session: a terminal's Ctrl-C must reach only the job script, which passes it on.
            process = subprocess.Popen(
                list(self._command),
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                preexec_fn=in_child,  # noqa: PLW1509 - this process has one thread
            )
            return self._wait(process)
        except OSError as error:
            sys.stderr.write("trainjob: can't start %s: %s\n" % (self._command[0], error.strerror))
            return exits.of_no_start(error)
        finally:
            processes.kill_children()

    def _wait(self, process: "subprocess.Popen[bytes]") -> int:
        while True:
            received = signal.sigtimedwait(WATCHED, self._left_s())
            ended = processes.reap()
            if process.pid in ended:
                process.returncode = ended[process.pid].returncode
                return exits.from_wait_status(process.returncode)
            if received is not None and received.si_signo in PASSED_ON:
                self._pass_on(process, PASSED_ON[signal.Signals(received.si_signo)])
            if self._left_s() == 0.0:
                process.returncode = -signal.SIGKILL  # by kill_children
                return exits.from_wait_status(process.returncode)

    def _left_s(self) -> float:
        return 3600.0 if self._end_at is None else max(0.0, self._end_at - clock.monotonic())

    def _pass_on(self, process: "subprocess.Popen[bytes]", number: int) -> None:
        if number == signal.SIGTERM:
            self._end_at = self._end_at or clock.monotonic() + self._grace_s
            number = signal.SIGUSR2  # the launcher treats it as TERM
        os.kill(process.pid, number)  # Popen.send_signal would reap it and lose its exit code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
