"""Exit codes, of the command line and of a rank."""

from __future__ import annotations

DONE = 0
USER_OR_CLUSTER_CAN_FIX = 1
USAGE = 2
OUR_BUG = 3
# A controller or a host is out of reach: the same command may succeed later.
OUT_OF_REACH = 4
INTERRUPTED = 130

# A rank that checkpointed because it was asked to stop. Scripts never rely on it (srun turns it
# into 143 when ranks end 0.1 s apart): they read the run directory's `requeue` marker.
CHECKPOINTED = 75
# A rank that found a newer attempt of its own run, and left without writing.
STALE_ATTEMPT = 76
# Of a launcher: its ranks ended well, and one was asked to stop, which the run directory's disk did not take.
UNRECORDED_REQUEST = 77


def from_wait_status(returncode: int) -> int:
    """Return the shell's exit code of a `Popen.returncode`: 128 + n when signal n ended it."""
    return returncode if returncode >= 0 else 128 - returncode


def of_no_start(error: OSError) -> int:
    """Return the shell's exit code of a program that could not be started: 127 where there is none, else 126."""
    return 127 if isinstance(error, FileNotFoundError) else 126
