"""Parameter averaging: every instance trains alone, and now and then all take the mean of their weights.

This is not the training of one instance on the global batch: it is here to be shown wrong, by `trainjob verify`.
"""

from __future__ import annotations

import time

import torch

from trainjob.train.engines.base import Engine, Parts
from trainjob.train.engines.step import TorchEngine

_EVERY_UPDATES = 4


def build(parts: Parts) -> Engine:
    """Return the engine."""
    return ParameterAveragingEngine(parts)


class ParameterAveragingEngine(TorchEngine):
    """Steps by its own gradients, and averages the weights after every fourth update."""

    def after_step(self, update: int) -> None:
        """Take the mean of all instances' weights where it is time to."""
        if self.world.size == 1 or (update + 1) % _EVERY_UPDATES:
            return
        start = time.perf_counter()
        self.world.waits = True
        with torch.no_grad():
            for weight in self.model.parameters():
                torch.distributed.all_reduce(weight)
                weight.div_(self.world.size)
        self.world.waits = False
        self.communication_seconds += time.perf_counter() - start
