"""Evaluation: every held-out sample counts once, whatever the number of instances."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Callable, Dict, Iterator, List, NamedTuple, Tuple

import numpy as np

from trainjob.train.engines.base import Engine
from trainjob.train.samples.sources import Source
from trainjob.train.world import World

if TYPE_CHECKING:
    from numpy.typing import NDArray

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
    start = time.perf_counter()
    engine.before_evaluation()
    try:
        sums = _sums_of_my_part(engine, held_out, world, beat)
    finally:
        engine.after_evaluation()
    *values, samples = world.sum(sums)
    loss, *metrics = [value / samples for value in values]
    seconds = time.perf_counter() - start
    return Evaluated(loss, dict(zip(engine.metric_names, metrics)), int(samples), seconds)


def _sums_of_my_part(engine: Engine, held_out: Source, world: World, beat: Callable[[], None]) -> List[float]:
    sums = [0.0] * (2 + len(engine.metric_names))
    for indices, counted in _parts(engine, len(held_out), world):
        values = engine.evaluate(*held_out.gather(indices, None))
        sums = [total + value * counted for total, value in zip(sums, [*values, 1.0])]
        beat()
    return sums


def _parts(engine: Engine, samples: int, world: World) -> Iterator[Tuple[NDArray[np.int64], int]]:
    """Yield the samples of this rank's part, one batch at a time, and how many of them count."""
    size, longest = engine.evaluation_batch, -(-samples // world.size)
    first, end = samples * world.rank // world.size, samples * (world.rank + 1) // world.size
    for begin in range(first, first + longest, size):
        if begin < end:
            yield np.arange(begin, min(begin + size, end), dtype=np.int64), min(begin + size, end) - begin
        elif engine.evaluates_together:
            # Some ranks have one sample more, and this one must make the same number of calls.
            yield np.zeros(1, dtype=np.int64), 0


def is_due(epochs: int, epoch_samples: int, held_out_samples: int) -> bool:
    """Return whether an evaluation is due after `epochs` whole epochs of the run.

    The answer is the same on every instance, and in every attempt: it does not matter where an attempt began.
    """
    every = max(1, -(-_WORTH_IT_AFTER * held_out_samples // epoch_samples))
    return epochs % every == 0
