"""The learning rate as a function of the update: nothing to save, and nothing to restore."""

from __future__ import annotations

import math
from typing import Callable, Dict

from trainjob.contract.errors import UserError
from trainjob.contract.job import TrainSettings

# Share of the learning rate at a share of the way from the end of the warm-up to the end of the training.
Shape = Callable[[float], float]

# A new schedule is a new row.
BY_NAME: Dict[str, Shape] = {
    "constant": lambda _way: 1.0,
    "cosine": lambda way: 0.5 * (1.0 + math.cos(math.pi * way)),
}


class Schedule:
    """The learning rate of every update of a training of `total` updates."""

    def __init__(self, settings: TrainSettings, total: int) -> None:
        shape = BY_NAME.get(settings.schedule)
        if shape is None:
            raise UserError("there is no schedule %s: known are %s" % (settings.schedule, ", ".join(sorted(BY_NAME))))
        self._shape = shape
        self._peak = settings.learning_rate
        self._warmup = settings.warmup_updates
        self._total = total

    def __call__(self, update: int) -> float:
        """Return the learning rate of `update`, counted from 0."""
        if update < self._warmup:
            return self._peak * (update + 1) / self._warmup
        way = (update - self._warmup) / max(1, self._total - self._warmup)
        return self._peak * self._shape(min(1.0, way))
