"""Writes progress.json: how far the run is, that it is alive, and what its disk refuses. Also the log's progress bar.

A full disk is reported in the same file: it is kept at one size, so that it can be overwritten in place when there is
no room for a new one.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
import time
from typing import Any, Dict, Optional

from trainjob.contract.paths import RunPaths
from trainjob.train.stopping import Requests

_EVERY_SECONDS = 1.0
_BYTES = 4096
_LONGEST_LINE = 400
_MOST_PASSED_OVER = 5


class Progress:
    """Rank 0's account of the run. On other ranks it does nothing.

    Its methods may be called from the thread that writes checkpoints.
    """

    def __init__(self, paths: RunPaths, attempt: int, total_updates: int, speaks: bool, requests: Requests) -> None:
        self._path = paths.progress
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
        self.beat()

    def beat(self) -> None:
        """Note that the run is alive; written at most once a second."""
        if self._speaks and time.monotonic() >= self._next_write:
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
                staging = self._path.with_name(".progress.%d.part" % os.getpid())
                staging.write_bytes(self._content())
                os.replace(str(staging), str(self._path))
                self._unwritten_line = None
            except OSError as error:
                # Training can outlive a full disk, so it must not end here.
                self.line_failed("WARNING: progress.json was not replaced: %s" % error)
                with contextlib.suppress(OSError), open(str(self._path), "r+b", buffering=0) as stream:
                    stream.write(self._content())
        self._next_write = time.monotonic() + _EVERY_SECONDS

    def _content(self) -> bytes:
        trouble = self._unwritten_checkpoint or self._unwritten_line or self._close_limit
        text = json.dumps(dict(self._facts, heartbeat=time.time(), trouble=trouble and trouble[:_LONGEST_LINE]))
        return text.ljust(_BYTES - 1).encode() + b"\n"

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
