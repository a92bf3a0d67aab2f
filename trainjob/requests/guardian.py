"""`python -m trainjob.requests.guardian FOLDER`: ends the runs in FOLDER once the command that started them is gone.

The command holds the guardian's standard input open. The kernel closes it when the command ends, for any reason.
"""

from __future__ import annotations

import contextlib
import shutil
import signal
import sys
from pathlib import Path

from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths

KEEP = "keep"  # with a file of this name in FOLDER, the run directories stay


def main(folder: Path) -> None:
    """Wait for the end of the input, then end every process of every run, and remove FOLDER unless it is kept."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    sys.stdin.buffer.read()
    from trainjob.lifecycle.cancel import cancel
    from trainjob.machines import processes
    from trainjob.machines.access import HERE

    for path in sorted(folder.iterdir()):
        if path.is_dir():
            with contextlib.suppress(UserError):
                cancel(RunPaths(path), grace_s=0.0)
            # A rehearsal has no submission, which `cancel` needs.
            with contextlib.suppress(UserError):
                processes.kill(HERE, str(path))
    if not (folder / KEEP).exists():
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
