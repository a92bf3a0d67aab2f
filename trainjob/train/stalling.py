"""A rank that hangs keeps all others waiting without a word. This is the word: who hangs, in what, since when.

A thread of every rank looks whether its training goes on. When it has not for the set time, the rank writes down what
it is in the middle of and ends: at once where it waits for nobody, so that the run is said to have failed where it
did; else after a moment, naming the ranks that wait for nobody and those that no longer answer.
"""

from __future__ import annotations

import faulthandler
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any, List, NamedTuple, Optional

from trainjob.contract import exits
from trainjob.contract.files import read_json, write_json
from trainjob.contract.paths import RunPaths
from trainjob.train.world import World

# How long ranks that wait give the others to write down what they do: not all clocks began at the same instant.
_GIVEN_TO_OTHERS_S = 3.0


class Stalled(NamedTuple):
    """What a rank that does not go on is in the middle of. `update` is counted from 1; 0: before the first."""

    rank: int
    doing: str
    update: int
    seconds: float
    waits: bool  # for other ranks

    def __str__(self) -> str:
        """Return it as a clause: "rank 1 has been computing update 57 for 600 s"."""
        update = " update %d" % self.update if self.update else ""
        return "rank %d has been %s%s for %.0f s" % (self.rank, self.doing, update, self.seconds)


class Watch:
    """Ends this rank when its training has not gone on for `limit_s` seconds. Used as a context."""

    def __init__(self, paths: RunPaths, world: World, attempt: int, limit_s: float) -> None:
        self._paths = paths
        self._world = world
        self._attempt = attempt
        self._limit_s = limit_s
        self._over = threading.Event()
        self.doing("starting", 0)

    def __enter__(self) -> "Watch":
        """Begin to look."""
        threading.Thread(target=self._look, name="trainjob-watch", daemon=True).start()
        return self

    def __exit__(self, *error: Any) -> None:
        """Look no more."""
        self._over.set()

    def doing(self, what: str, update: int) -> None:
        """Note what this rank begins to do."""
        self._doing, self._update, self._since = what, update, time.monotonic()

    def beat(self) -> None:
        """Note that what this rank does goes on."""
        self._since = time.monotonic()

    def _look(self) -> None:
        while not self._over.wait(min(1.0, self._limit_s / 4)):
            seconds = time.monotonic() - self._since
            if seconds > self._limit_s:
                self._end(Stalled(self._world.rank, self._doing, self._update, seconds, self._world.waits))

    def _end(self, mine: Stalled) -> None:
        self._write_down(mine)
        if mine.waits:
            time.sleep(_GIVEN_TO_OTHERS_S)
            _say(self._who_hangs(mine))
        else:
            _say("%s, and the others wait for it; where it is:" % (mine,))
            faulthandler.dump_traceback(sys.stderr)
        # The main thread is beyond reach, and an exit code is all that launch.py needs.
        os._exit(exits.USER_OR_CLUSTER_CAN_FIX)

    def _write_down(self, mine: Stalled) -> None:
        try:
            write_json(_file(self._paths, mine.rank), dict(mine._asdict(), attempt=self._attempt))
        except OSError as error:
            _say("%s; what it does can't be written down: %s" % (mine, error))

    def _who_hangs(self, mine: Stalled) -> str:
        others = [(rank, self._read(rank)) for rank in range(self._world.size) if rank != mine.rank]
        silent = ["rank %d does not answer: it is frozen, or its host is" % rank for rank, found in others if not found]
        busy = [str(found) for _, found in others if found and not found.waits]
        culprits = "; ".join(busy + silent)
        return "nothing has gone on for %.0f s (--stall-timeout): %s" % (
            mine.seconds,
            culprits or "all ranks wait for each other, so the network between them does not carry",
        )

    def _read(self, rank: int) -> Optional[Stalled]:
        return _read(_file(self._paths, rank), self._attempt)


def who_hung(paths: RunPaths, attempt: int) -> str:
    """Return which ranks of `attempt` were found hanging by themselves, as clauses; empty where none was."""
    found = [_read(path, attempt) for path in sorted(paths.logs.glob("stalled-*.json"))]
    return "; ".join(str(stalled) for stalled in found if stalled and not stalled.waits)


def _file(paths: RunPaths, rank: int) -> Path:
    return paths.logs / ("stalled-%04d.json" % rank)


def _read(path: Path, attempt: int) -> Optional[Stalled]:
    fields = read_json(path)
    if not isinstance(fields, dict) or fields.pop("attempt", None) != attempt:
        return None
    return Stalled(**fields)


def _say(line: str) -> None:
    lines: List[str] = ["trainjob: %s\n" % line]
    sys.stderr.writelines(lines)
    sys.stderr.flush()
