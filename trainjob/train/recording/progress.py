"""Rank 0's account of the run, which progress.json holds, and the log's progress bar."""

from __future__ import annotations

import contextlib
import sys
import threading
from typing import Any, Dict, Optional

from trainjob.contract import clock
from trainjob.contract.paths import RunPaths
from trainjob.records import progress
from trainjob.records.progress import ProgressRecord
from trainjob.train.stopping import Requests

_EVERY_SECONDS = 1.0
_LONGEST_LINE = 400
_MOST_PASSED_OVER = 5


class ProgressWriter:
    """Rank 0's account of the run. On other ranks it does nothing.

    Its methods may be called from the thread that writes checkpoints.
    """

    def __init__(self, paths: RunPaths, attempt: int, total_updates: int, speaks: bool, requests: Requests) -> None:
        self._paths = paths
        self._facts: Dict[str, Any] = {"attempt": attempt, "epoch": 0, "update": 0, "total_updates": total_updates}
        self._facts.update(passed_over=[], checkpoints_not_written=0)
        self._speaks = speaks
        self._requests = requests
        self._next_write = 0.0
        self._lock = threading.Lock()
        self._unwritten_checkpoint: Optional[str] = None
        self._unwritten_line: Optional[str] = None
        self._close_limit: Optional[str] = None
        self._bar = _bar(total_updates) if speaks else None

    def begin(self, epoch: int, update: int) -> None:
        """Note that the attempt continues after `update` updates, the last of them in `epoch`; 0: from the start."""
        self._facts["epoch"] = epoch
        self._facts["began_at"] = self._facts["update"] = self._facts["durable_update"] = update
        self.write()

    def at(self, epoch: int, update: int) -> None:
        """Note that `update` updates are made, the last of them in `epoch`, counted from 1."""
        if self._bar is not None:
            self._bar.update(update - self._bar.n)
        self._facts["epoch"], self._facts["update"] = epoch, update
        if "timed_from" not in self._facts:
            self._facts.update(timed_from=update, timed_since=clock.time())
        self.beat()

    def beat(self) -> None:
        """Note that the run is alive; written at most once a second."""
        if self._speaks and clock.monotonic() >= self._next_write:
            self.write()

    def checkpointed(self, update: int) -> None:
        """Note that the checkpoint of `update` is durable."""
        self._facts["durable_update"] = update
        self._unwritten_checkpoint = None

    def passed_over(self, warning: str) -> None:
        """Note, and print, that a checkpoint is passed over, or only in part taken over."""
        if len(self._facts["passed_over"]) < _MOST_PASSED_OVER:
            self._facts["passed_over"].append(warning[:_LONGEST_LINE])
        self.say(warning)

    def checkpoint_failed(self, warning: str) -> None:
        """Note, and print, that a checkpoint could not be written."""
        self._unwritten_checkpoint = warning
        self._facts["checkpoints_not_written"] += 1
        self.say(warning)
        self.write()

    def limit_too_close(self, warning: str) -> None:
        """Note, and print once, that the time limit leaves too little time for a checkpoint."""
        if self._close_limit is None:
            self.say(warning)
        self._close_limit = warning

    def line_failed(self, warning: str) -> None:
        """Note, and print, that a line of a record could not be written."""
        self._unwritten_line = warning
        self.say(warning)

    def write(self) -> None:
        """Write progress.json now; readers see the old file or the new one."""
        if not self._speaks or self._requests.now().stale:
            return
        with self._lock:
            try:
                progress.write(self._paths, self._record())
                self._unwritten_line = None
            except OSError as error:
                # Training can outlive a full disk, so it must not end here.
                self.line_failed("WARNING: progress.json was not replaced: %s" % error)
                with contextlib.suppress(OSError):
                    progress.overwrite(self._paths, self._record())
        self._next_write = clock.monotonic() + _EVERY_SECONDS

    def _record(self) -> ProgressRecord:
        trouble = self._unwritten_checkpoint or self._unwritten_line or self._close_limit
        return ProgressRecord(**self._facts, heartbeat=clock.time(), trouble=trouble and trouble[:_LONGEST_LINE])

    def say(self, line: str) -> None:
        """Print one line, above the bar if there is one."""
        # A full disk must not end the training for a line of its log.
        with contextlib.suppress(OSError):
            if self._bar is not None:
                self._bar.write(line, file=sys.stderr)
            else:
                print(line, flush=True)  # noqa: T201 - a rank's log is its standard output

    def close(self) -> None:
        """Close the bar and write progress.json a last time."""
        if self._bar is not None:
            self._bar.close()
        self.write()


def _bar(total: int) -> Any:
    if not sys.stderr.isatty():
        return None
    try:
        from tqdm import tqdm
    except ImportError:
        return None
    return tqdm(total=total, unit="update", dynamic_ncols=True)
