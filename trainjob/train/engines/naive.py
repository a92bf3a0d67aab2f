"""The textbook: when the backward pass is over, one all-reduce a parameter, one after the other, then divide.

Right, and slow: kept as teaching material, and as the stick by which the others are measured.
"""

from __future__ import annotations

import time

import torch

from trainjob.train.engines.base import Engine, Parts
from trainjob.train.engines.step import TorchEngine


def build(parts: Parts) -> Engine:
    """Return the engine."""
    return NaiveEngine(parts)


class NaiveEngine(TorchEngine):
    """Sums every parameter's gradient over all instances."""

    def reduce_gradients(self) -> None:
        """Make every gradient the mean, or the sum, over all instances."""
        if self.world.size == 1:
            return
        start = time.perf_counter()
        self.world.waits = True
        for weight in self.model.parameters():
            if weight.grad is not None:
                torch.distributed.all_reduce(weight.grad)
                if self.settings.reduction == "mean":
                    weight.grad /= self.world.size
        self.world.waits = False
        self.communication_seconds += time.perf_counter() - start
