"""Ends a run in which a rank hangs, and reports which one, in what, and for how long.

A rank that hangs would keep all others waiting silently. So a thread of every rank checks that training makes progress.
When it has made none for the stall timeout, the rank records what it is doing and ends. A rank that waits for nobody
ends at once, so that the failure is attributed to it; the others end a moment later and name the ranks that were not
waiting, or that no longer respond.
"""

from __future__ import annotations

import faulthandler
import os
import sys
import threading
from pathlib import Path
from typing import NamedTuple, Optional

import torch

from trainjob.contract import clock, exits
from trainjob.contract.environment import STACKS
from trainjob.contract.liveness import PROGRESS, SignsOfLife, StallLimits, silence_of
from trainjob.contract.paths import RunPaths
from trainjob.records import stacks
from trainjob.records.files import read_json, write_atomically, write_json
from trainjob.train.world import World, flight_recorder

# Ranks that wait give the others this long to record what they are doing: not all timers started together.
_GIVEN_TO_OTHERS_S = 3.0


class Stalled(NamedTuple):
    """A rank without progress, and what it is doing. `update` is counted from 1; 0 means before the first."""

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
    """Ends this rank when its training has made no progress for `limit_s` seconds. Used as a context."""

    def __init__(self, paths: RunPaths, world: World, attempt: int, limit_s: float) -> None:
        self._paths = paths
        self._world = world
        self._attempt = attempt
        self._limit_s = limit_s
        self._over = threading.Event()
        self.doing("starting", 0)

    def __enter__(self) -> "Watch":
        """Start watching."""
        threading.Thread(target=self._look, name="trainjob-watch", daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        """Stop watching."""
        self._over.set()

    def doing(self, what: str, update: int) -> None:
        """Note what this rank is starting to do."""
        self._doing, self._update, self._since = what, update, clock.monotonic()

    def beat(self) -> None:
        """Note that this rank makes progress."""
        self._since = clock.monotonic()

    def _look(self) -> None:
        while not self._over.wait(min(1.0, self._limit_s / 4)):
            signs = SignsOfLife(progress=self._since)
            silence = silence_of(PROGRESS, signs, clock.monotonic(), StallLimits(self._limit_s))
            if silence is not None:
                self._end(Stalled(self._world.rank, self._doing, self._update, silence.for_s, self._world.waits))

    def _end(self, mine: Stalled) -> None:
        recorder = flight_recorder()
        if recorder is not None and torch.distributed.is_initialized():
            try:  # the name that torch's own torchfrtrace expects: a prefix and the rank
                write_atomically(self._paths.logs / ("flight-record-%d" % mine.rank), recorder.dump())
            except (OSError, RuntimeError) as error:
                _say("torch's flight record can't be kept: %s" % error)
        try:
            write_json(_file(self._paths, mine.rank), dict(mine._asdict(), attempt=self._attempt))
        except OSError as error:
            _say("%s; this can't be recorded: %s" % (mine, error))
        if STACKS in os.environ:  # without our launcher, none would answer
            prefix, ranks = "stall-%d-" % self._attempt, range(self._world.size)
            stacks.request(self._paths, prefix)
            stacks.wait(self._paths, self._world.size, prefix, lambda: all(map(self._read, ranks)))
        if mine.waits:
            clock.sleep(_GIVEN_TO_OTHERS_S)
            others = [(rank, self._read(rank)) for rank in range(self._world.size) if rank != mine.rank]
            busy = [str(other) for _, other in others if other and not other.waits]
            silent = [
                "rank %d does not respond: it or its host is frozen" % rank for rank, other in others if not other
            ]
            culprits = "; ".join(busy + silent)
            _say(
                "no progress for %.0f s (--stall-timeout-s): %s"
                % (
                    mine.seconds,
                    culprits or "all ranks wait for each other, so the network between them is at fault",
                )
            )
        else:
            _say("%s, and the others wait for it. Its stack:" % (mine,))
            faulthandler.dump_traceback(sys.stderr)
        # The main thread can't be reached, and the launcher needs only an exit code.
        os._exit(exits.USER_OR_CLUSTER_CAN_FIX)

    def _read(self, rank: int) -> Optional[Stalled]:
        return _read(_file(self._paths, rank), self._attempt)


def who_hung(paths: RunPaths, attempt: int) -> str:
    """Return which ranks of `attempt` hung without waiting for others, as clauses; empty if none did."""
    records = [_read(path, attempt) for path in sorted(paths.logs.glob("stalled-*.json"))]
    return "; ".join(str(stalled) for stalled in records if stalled and not stalled.waits)


def _file(paths: RunPaths, rank: int) -> Path:
    return paths.logs / ("stalled-%04d.json" % rank)


def _read(path: Path, attempt: int) -> Optional[Stalled]:
    fields = read_json(path)
    if not isinstance(fields, dict) or fields.pop("attempt", None) != attempt:
        return None
    return Stalled(**fields)


def _say(line: str) -> None:
    sys.stderr.write("trainjob: %s\n" % line)
    sys.stderr.flush()
