"""Evaluation: every held-out sample counts once, whatever the number of instances."""

from __future__ import annotations

from typing import Callable, Dict, NamedTuple

import numpy as np

from trainjob.contract import clock
from trainjob.train.engines.base import Engine
from trainjob.train.samples.sources import Source
from trainjob.train.world import World

# Between two evaluations, training takes at least this many times the held-out samples: evaluating stays cheap.
_WORTH_IT_AFTER = 2


class Evaluated(NamedTuple):
    """Means over all held-out samples."""

    loss: float
    metrics: Dict[str, float]
    samples: int
    seconds: float


def evaluate(engine: Engine, held_out: Source, world: World, beat: Callable[[], None]) -> Evaluated:
    """Return loss and metrics over `held_out`. Each rank evaluates a part; the parts differ by at most one sample."""
    start = clock.monotonic()
    size, samples = engine.evaluation_batch, len(held_out)
    first, end = samples * world.rank // world.size, samples * (world.rank + 1) // world.size
    longest = -(-samples // world.size)
    sums = [0.0] * (2 + len(engine.metric_names))
    engine.before_evaluation()
    try:
        for begin in range(first, first + longest, size):
            indices = np.arange(begin, min(begin + size, end), dtype=np.int64)
            counted = len(indices)
            if not counted and not engine.evaluates_together:
                break
            if not counted:  # some ranks have one sample more, and this one must make the same number of calls
                indices = np.zeros(1, dtype=np.int64)
            values = engine.evaluate(*held_out.gather(indices, None))
            sums = [total + value * counted for total, value in zip(sums, [*values, 1.0])]
            beat()
    finally:
        engine.after_evaluation()
    *values, evaluated = world.sum(sums)
    loss, *metrics = [value / evaluated for value in values]
    seconds = clock.monotonic() - start
    return Evaluated(loss, dict(zip(engine.metric_names, metrics)), int(evaluated), seconds)


def is_due(epochs: int, epoch_samples: int, held_out_samples: int) -> bool:
    """Return whether an evaluation is due after `epochs` whole epochs of the run.

    The answer is the same on every instance, and in every attempt: it does not matter where an attempt began.
    """
    every = max(1, -(-_WORTH_IT_AFTER * held_out_samples // epoch_samples))
    return epochs % every == 0
