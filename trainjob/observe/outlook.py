"""The pace of a run and its expected end, compared with its time limit."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from trainjob.cluster import slurm_text
from trainjob.contract import clock
from trainjob.records.progress import ProgressRecord

# After its first block, an attempt has warmed up.
_LEAST_UPDATES = 5
# Larger values come from damaged files.
_MOST_UPDATES, _LONGEST_S = 1 << 50, 1e10


@dataclass(frozen=True)
class Outlook:
    """Seconds that an update takes, and seconds from now until the last update and until the time limit.

    They are None where the number of updates is unknown, and where a limit is absent or unknown.
    """

    update_s: float
    left_s: float | None
    limit_left_s: float | None

    @property
    def more_attempts(self) -> int:
        """Further attempts that the run needs if each has the time that this one has left; 0 if this one suffices."""
        if self.left_s is None or self.limit_left_s is None or self.left_s <= self.limit_left_s:
            return 0
        return 1 if self.limit_left_s <= 0 else math.ceil(self.left_s / self.limit_left_s) - 1


def outlook(progress: ProgressRecord, scheduler: Mapping[str, str]) -> Outlook | None:
    """Return the outlook of a running run; None before it has a pace."""
    update, total, heartbeat = progress.update, progress.total_updates, progress.heartbeat
    if update is None or heartbeat is None or abs(update) > _MOST_UPDATES:
        return None
    # Evaluations and checkpoints are part of the pace; start-up and warm-up are not.
    made, took_s = update - (progress.timed_from or 0), heartbeat - (progress.timed_since or heartbeat)
    if made < _LEAST_UPDATES or not 0 < took_s < _LONGEST_S:  # NaN is above nothing
        return None
    pace_s = took_s / made
    left_s = None
    if total is not None:
        left_s = (min(total, _MOST_UPDATES) - update) * pace_s - max(0.0, clock.time() - heartbeat)
        if not abs(left_s) < _LONGEST_S:
            return None
        left_s = max(0.0, left_s)
    try:
        limit_left_s = slurm_text.seconds(scheduler.get("time_left") or "UNLIMITED")
    except ValueError:  # Slurm writes INVALID for a job that is just beginning
        limit_left_s = None
    return Outlook(pace_s, left_s, limit_left_s)
