"""progress.json: how far the run is and that it lives. A bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from typing import Any, Dict

from trainjob.contract.paths import RunPaths
from trainjob.train.stopping import Requests

_EVERY_SECONDS = 1.0


class Progress:
    """Rank 0's word on how far the run is; on other ranks it is silent."""

    def __init__(self, paths: RunPaths, attempt: int, total_updates: int, speaks: bool, requests: Requests) -> None:
        self._path = paths.progress
        self._facts: Dict[str, Any] = {"attempt": attempt, "epoch": 0, "update": 0, "total_updates": total_updates}
        self._speaks = speaks
        self._requests = requests
        self._next_write = 0.0
        self._bar = _bar(total_updates) if speaks else None

    def begin(self, epoch: int, update: int) -> None:
        """Note that the attempt goes on after `update` updates, the last of them in `epoch`; 0 from the beginning."""
        self._facts["epoch"] = epoch
        self._facts["began_at"] = self._facts["update"] = update
        self.write()

    def at(self, epoch: int, update: int) -> None:
        """Note that `update` updates are made, the last of them in `epoch`, counted from 1."""
        if self._bar is not None:
            self._bar.update(update - self._bar.n)
        self._facts["epoch"], self._facts["update"] = epoch, update
        self.beat()

    def beat(self) -> None:
        """Say that the run lives, at most once a second."""
        if self._speaks and time.monotonic() >= self._next_write:
            self.write()

    def write(self) -> None:
        """Write progress.json now; readers see the old one or the new one."""
        if not self._speaks or self._requests.now().stale:
            return
        staging = self._path.with_name(".progress.%d.part" % os.getpid())
        try:
            staging.write_text(json.dumps(dict(self._facts, heartbeat=time.time())) + "\n")
            os.replace(str(staging), str(self._path))
        except OSError as error:
            # A full disk must not end a training that could outlive it.
            self.say("WARNING: progress.json was not written: %s" % error)
        self._next_write = time.monotonic() + _EVERY_SECONDS

    def say(self, line: str) -> None:
        """Print one line, beside the bar where there is one."""
        # A full disk must not end the training for a line of its log.
        with contextlib.suppress(OSError):
            if self._bar is not None:
                self._bar.write(line, file=sys.stderr)
            else:
                print(line, flush=True)  # noqa: T201 - a rank's log is its standard output

    def close(self) -> None:
        """Write the last word."""
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
