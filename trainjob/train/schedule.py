"""The learning rate as a function of the update, without a state to save."""

from __future__ import annotations

import math
from typing import Callable, Dict, Mapping, NamedTuple

from trainjob.contract.optimizers import schedule_options
from trainjob.records.job import TrainSettings


class Elapsed(NamedTuple):
    """The progress of a training since its warm-up."""

    update: int  # made since the warm-up
    total: int  # updates after the warm-up
    epochs: float  # since the start of the run

    @property
    def share(self) -> float:
        """Return the share of the training that is done, 0 to 1."""
        return min(1.0, self.update / max(1, self.total))


Options = Mapping[str, float]
# From what has elapsed and the schedule's options to a share of the peak learning rate.
Shape = Callable[[Elapsed, Options], float]


def _linear(end: float, share: float) -> float:
    return 1.0 + (end - 1.0) * share


def _cosine(start: float, end: float, share: float) -> float:
    return end + (start - end) * 0.5 * (1.0 + math.cos(math.pi * share))


def _one_cycle(elapsed: Elapsed, options: Options) -> float:
    """Rise and fall along cosines, as torch's OneCycleLR does (Smith and Topin, 2018)."""
    last = max(1, elapsed.total - 1)
    peak = options["rise"] * elapsed.total - 1
    if elapsed.update <= peak:
        return _cosine(options["start"], 1.0, elapsed.update / peak if peak > 0 else 1.0)
    return _cosine(1.0, options["end"], min(1.0, (elapsed.update - peak) / (last - peak)))


# A new schedule is a row here and one in contract.optimizers, which has its options.
SHAPES: Dict[str, Shape] = {
    "constant": lambda _elapsed, _options: 1.0,
    "linear": lambda elapsed, options: _linear(options["end"], elapsed.share),
    "cosine": lambda elapsed, options: _cosine(1.0, options["end"], elapsed.share),
    "step": lambda elapsed, options: options["factor"] ** int(elapsed.epochs / options["every_epochs"]),
    "warmup-stable-decay": lambda elapsed, options: _linear(
        options["end"], max(0.0, elapsed.share - (1.0 - options["decay"])) / options["decay"]
    ),
    "one-cycle": _one_cycle,
}


class Schedule:
    """The learning rate of every update, in a training of `total` updates. Raises UserError."""

    def __init__(self, settings: TrainSettings, total: int, updates_per_epoch: int) -> None:
        self._options = schedule_options(settings.schedule, settings.schedule_options, settings.warmup_updates)
        self._shape = SHAPES[settings.schedule]
        self._peak = settings.learning_rate
        self._warmup = settings.warmup_updates
        self._total = total
        self._updates_per_epoch = updates_per_epoch

    def __call__(self, update: int) -> float:
        """Return the learning rate of `update`, counted from 0."""
        if update < self._warmup:
            return self._peak * (update + 1) / self._warmup
        elapsed = Elapsed(update - self._warmup, self._total - self._warmup, update / self._updates_per_epoch)
        return self._peak * self._shape(elapsed, self._options)
