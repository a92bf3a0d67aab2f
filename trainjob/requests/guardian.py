"""`python -m trainjob.requests.guardian FOLDER`: ends the runs in FOLDER once the command that started them is gone.

The command holds the guardian's standard input open. The kernel closes it when the command ends, for any reason.
Without FOLDER, the input names one run directory, and the run may outlive the command once its last line is LET_GO.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from trainjob.contract import clock
from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths

# With a file of this name in FOLDER, the run directories stay. It has a line for each that could not be cancelled.
KEEP = "keep"
LET_GO = "let go"
# How often, and with what pause, it tries to end a reservation on a cluster that is out of reach.
_TRIES, _PAUSE_S = 60, 60.0


def main(folder: Path) -> None:
    """Wait for the end of the input, then end every process of every run, and remove FOLDER unless it is kept.

    It is kept, too, where the job of a run could not be cancelled.
    """
    _read_input()
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


def _read_input() -> list[str]:
    """Return the lines of the input once it has ended."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    return os.fsdecode(sys.stdin.buffer.read()).splitlines()


def end_named_run(lines: Sequence[str]) -> None:
    """End the run that these lines of the input name, unless they let go of it.

    One whose submission was cut short leaves nothing: a job that arrives late finds no run directory, and does nothing.
    """
    if not lines or lines[-1] == LET_GO:
        return
    from trainjob.lifecycle import ledger
    from trainjob.lifecycle.cancel import cancel
    from trainjob.observe import index
    from trainjob.records import submission as submissions

    paths = RunPaths(lines[0])
    submission = submissions.read(paths)
    for tries_left in range(_TRIES - 1, -1, -1) if submission is not None else ():
        try:
            submission = cancel(paths, grace_s=0.0).submission
            break
        except UserError:
            if tries_left == 0:
                raise
            clock.sleep(_PAUSE_S)
    if submission is None or submission.native is None:
        shutil.rmtree(paths.folder, ignore_errors=True)
        index.forget(paths.id)
        ledger.take_back(paths)


if __name__ == "__main__":
    main(Path(sys.argv[1])) if len(sys.argv) > 1 else end_named_run(_read_input())
