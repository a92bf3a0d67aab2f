"""When a run should end, from its own pace or at first from its prediction, compared with its time limit."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass

from trainjob.cluster import slurm_text
from trainjob.contract.paths import RunPaths
from trainjob.records import events, prediction
from trainjob.records.measures import ProgressRecord

# The pace of fewer updates is mostly warm-up.
_LEAST_UPDATES = 20
# Larger values come from damaged files.
_MOST_UPDATES, _LONGEST_S = 1 << 50, 1e10


@dataclass(frozen=True)
class Outlook:
    """Seconds from now until the last update and until the time limit, which is None if absent or unknown."""

    left_s: float
    limit_left_s: float | None
    basis: str  # the source of the pace: "its pace" | "its prediction"

    @property
    def more_attempts(self) -> int:
        """Further attempts that the run needs if each has the time that this one has left; 0 if this one suffices."""
        if self.limit_left_s is None or self.left_s <= self.limit_left_s:
            return 0
        return 1 if self.limit_left_s <= 0 else math.ceil(self.left_s / self.limit_left_s) - 1


def outlook(paths: RunPaths, progress: ProgressRecord, scheduler: Mapping[str, str]) -> Outlook | None:
    """Return the outlook of a running run; None if its pace is unknown."""
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
    """Return the seconds per update in this attempt, including evaluations and checkpoints."""
    attempts = events.attempts(events.read(paths))
    if not attempts or attempts[-1].number != progress.attempt:
        return None
    made = (progress.update or 0) - (progress.began_at or 0)
    took_s = (progress.heartbeat or 0.0) - attempts[-1].began_at - start_up_s
    return took_s / made if made >= _LEAST_UPDATES and took_s > 0 else None


def _limit_left(scheduler: Mapping[str, str]) -> float | None:
    try:
        return slurm_text.seconds(scheduler.get("time_left") or "UNLIMITED")
    except ValueError:  # Slurm writes INVALID for a job that is just beginning
        return None
