"""Evaluation: every held-out sample counts once, whatever the number of instances."""

from __future__ import annotations

import time
from typing import Callable, Dict, List, NamedTuple

import numpy as np

from trainjob.train.engines.base import Engine
from trainjob.train.sources import Source
from trainjob.train.world import World

# Without a backward pass no activations are kept, so that eight micro batches fit where one does.
_MICRO_BATCHES_AT_ONCE = 8
# Updates on this many times the held-out samples lie between two evaluations, so that they cost a small part.
_WORTH_IT_AFTER = 2


class Evaluated(NamedTuple):
    """Means over all held-out samples."""

    loss: float
    metrics: Dict[str, float]
    samples: int
    seconds: float


def evaluate(engine: Engine, held_out: Source, micro_batch: int, world: World, beat: Callable[[], None]) -> Evaluated:
    """Return loss and metrics over `held_out`; each rank takes its part, of equal length give or take one."""
    start = time.perf_counter()
    engine.before_evaluation()
    sums = _sums_of_my_part(engine, held_out, micro_batch, world, beat)
    *values, samples = world.sum(sums)
    loss, *metrics = [value / samples for value in values]
    seconds = time.perf_counter() - start
    return Evaluated(loss, dict(zip(engine.metric_names, metrics)), int(samples), seconds)


def _sums_of_my_part(
    engine: Engine, held_out: Source, micro_batch: int, world: World, beat: Callable[[], None]
) -> List[float]:
    samples, size = len(held_out), micro_batch * _MICRO_BATCHES_AT_ONCE
    first, end = samples * world.rank // world.size, samples * (world.rank + 1) // world.size
    sums = [0.0] * (2 + len(engine.metric_names))
    for begin in range(first, end, size):
        indices = np.arange(begin, min(begin + size, end), dtype=np.int64)
        values = engine.evaluate(*held_out.gather(indices, None))
        sums = [total + value * len(indices) for total, value in zip(sums, [*values, 1.0])]
        beat()
    return sums


def is_due(trained_since: int, held_out_samples: int) -> bool:
    """Return whether an evaluation is worth its time at the end of an epoch: the same on every instance."""
    return trained_since >= _WORTH_IT_AFTER * held_out_samples
