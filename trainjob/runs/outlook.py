"""When a run at work should end: by its own pace, or by its prediction before it has one; against its time limit."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass

from trainjob.cluster import times
from trainjob.contract import events, prediction
from trainjob.contract.measures import ProgressRecord
from trainjob.contract.paths import RunPaths

# A pace that fewer updates show is mostly warm-up.
_LEAST_UPDATES = 20
# What is beyond is damage, not an outlook.
_MOST_UPDATES, _LONGEST_S = 1 << 50, 1e10


@dataclass(frozen=True)
class Outlook:
    """Seconds from now until all updates are made, and until the time limit; None: there is none, or nobody knows."""

    left_s: float
    limit_left_s: float | None
    basis: str  # what the pace is known from: "its pace" | "its prediction"

    @property
    def more_attempts(self) -> int:
        """How many further attempts it takes if each has as much time as this one has left; 0: this one is enough."""
        if self.limit_left_s is None or self.left_s <= self.limit_left_s:
            return 0
        return 1 if self.limit_left_s <= 0 else math.ceil(self.left_s / self.limit_left_s) - 1


def outlook(paths: RunPaths, progress: ProgressRecord, scheduler: Mapping[str, str]) -> Outlook | None:
    """Return the outlook of a run at work; None where nothing tells its pace."""
    update, total = progress.update, progress.total_updates
    if update is None or total is None or abs(update) > _MOST_UPDATES or progress.heartbeat is None:
        return None
    stored = prediction.read(paths)
    paced = _pace(paths, progress, stored.start_up_s if stored else 0.0)
    if paced is not None:
        pace, basis = paced, "its pace"
    elif stored is not None:
        pace, basis = stored.update_s.median, "its prediction"
    else:
        return None
    since = max(0.0, time.time() - progress.heartbeat)
    left = (min(total, _MOST_UPDATES) - update) * pace - since
    return Outlook(max(0.0, left), _limit_left(scheduler), basis) if abs(left) < _LONGEST_S else None


def _pace(paths: RunPaths, progress: ProgressRecord, start_up_s: float) -> float | None:
    """Return the seconds of an update in this attempt, evaluations and checkpoints included."""
    attempts = events.attempts(events.read(paths))
    if not attempts or attempts[-1].number != progress.attempt:
        return None
    made = (progress.update or 0) - (progress.began_at or 0)
    took_s = (progress.heartbeat or 0.0) - attempts[-1].began_at - start_up_s
    return took_s / made if made >= _LEAST_UPDATES and took_s > 0 else None


def _limit_left(scheduler: Mapping[str, str]) -> float | None:
    try:
        return times.seconds(scheduler.get("time_left") or "UNLIMITED")
    except ValueError:  # Slurm writes INVALID for a job that is just beginning
        return None
