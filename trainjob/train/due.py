"""The updates after which checkpoints are due: every N, or as often as their cost and the failures of hosts suggest."""

from __future__ import annotations

import math

from trainjob.records.job import TrainSettings
from trainjob.train.world import World

# With `auto`: one soon after the start, to measure what it costs.
_FIRST_UPDATES = 10
_ANOTHER = 1.25  # times the updates that were last announced: worth a line in the log


def best_interval_s(stood_still_s: float, durable_s: float, failure_every_s: float) -> float:
    """Return the seconds between two checkpoints that lose the least training (Young, 1974; Daly, 2006).

    Writing costs `stood_still_s` each time, a failure half of an interval on average. The next checkpoint waits until
    the last one is durable.
    """
    return max(math.sqrt(2 * stood_still_s * failure_every_s), durable_s)


class Due:
    """The updates after which a checkpoint is written; the same on all ranks."""

    def __init__(self, settings: TrainSettings, world: World, start: int) -> None:
        self._every, self._step = settings.checkpoint_every, settings.device_iterations
        self._failure_every_s = settings.failure_every_s
        self._world = world
        self._start = start
        self._next = start + _FIRST_UPDATES
        self._reported = 0

    def at(self, update: int) -> bool:
        """Return whether the block that ended with `update` reached the next checkpoint."""
        if isinstance(self._every, str):
            return update >= self._next
        return bool(self._every) and update // self._every > (update - self._step) // self._every

    def saved(self, update: int, training_s: float, stood_still_s: float, durable_s: float) -> str:
        """Choose the next update, given the seconds of training since the start; return a line where that is news."""
        if not isinstance(self._every, str):
            return ""
        assert self._failure_every_s is not None  # noqa: S101 - the plan refuses auto without it
        interval_s = best_interval_s(stood_still_s, durable_s, self._failure_every_s)
        each_s = max(1e-9, training_s / (update - self._start))
        # Each rank has measured other times, and all must write the same checkpoints.
        updates = self._world.from_first(max(1, round(interval_s / each_s)))
        self._next = update + updates
        if self._reported and 1 / _ANOTHER <= updates / self._reported <= _ANOTHER:
            return ""
        self._reported = updates
        return (
            "checkpoints: every %d updates (%.3g s); training stands still %.3g s for one, a failure every %.3g h"
            % (
                updates,
                interval_s,
                stood_still_s,
                self._failure_every_s / 3600,
            )
        )
