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

# With a file of this name in FOLDER, the run directories stay. It has a line for each that could not be cancelled.
KEEP = "keep"


def main(folder: Path) -> None:
    """Wait for the end of the input, then end every process of every run, and remove FOLDER unless it is kept.

    It is kept, too, where the job of a run could not be cancelled.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    sys.stdin.buffer.read()
    from trainjob.backends import mirror
    from trainjob.lifecycle import ledger
    from trainjob.lifecycle.cancel import cancel
    from trainjob.machines import processes
    from trainjob.machines.access import HERE
    from trainjob.records import submission as submissions

    runs = [RunPaths(path) for path in sorted(folder.iterdir()) if path.is_dir()]
    for paths in runs:
        try:
            cancel(paths, grace_s=0.0)
        except UserError:
            # A rehearsal has no submission, which `cancel` needs. The record of a job is what ends it later.
            if paths.submission.exists():
                with (folder / KEEP).open("a") as keep:
                    keep.write(f"{paths.folder}\n")
        with contextlib.suppress(UserError):
            processes.kill(HERE, str(paths.folder))
    if (folder / KEEP).exists():
        return
    for paths in runs:
        ledger.settle(paths)
        with contextlib.suppress(UserError):
            mirror.remove(submissions.read(paths))
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
