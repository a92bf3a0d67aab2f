"""The expected end of a run, from its own pace or at first from its prediction, compared with its time limit."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from trainjob.cluster import slurm_text
from trainjob.contract import clock
from trainjob.contract.paths import RunPaths
from trainjob.records import prediction
from trainjob.records.progress import ProgressRecord

# After its first block, an attempt has warmed up.
_LEAST_UPDATES = 5
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
    update, total, heartbeat = progress.update, progress.total_updates, progress.heartbeat
    if update is None or total is None or heartbeat is None or abs(update) > _MOST_UPDATES:
        return None
    # Evaluations and checkpoints are part of the pace; start-up and warm-up are not.
    made, took_s = update - (progress.timed_from or 0), heartbeat - (progress.timed_since or heartbeat)
    if made >= _LEAST_UPDATES and took_s > 0:
        pace, basis = took_s / made, "its pace"
    elif (stored := prediction.read(paths)) is not None:
        pace, basis = stored.update_s.median, "its prediction"
    else:
        return None
    left_s = (min(total, _MOST_UPDATES) - update) * pace - max(0.0, clock.time() - heartbeat)
    if not abs(left_s) < _LONGEST_S:  # NaN is below nothing
        return None
    try:
        limit_left_s = slurm_text.seconds(scheduler.get("time_left") or "UNLIMITED")
    except ValueError:  # Slurm writes INVALID for a job that is just beginning
        limit_left_s = None
    return Outlook(max(0.0, left_s), limit_left_s, basis)
