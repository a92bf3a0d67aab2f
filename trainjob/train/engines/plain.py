"""Engines of a few lines on top of the training step: one process alone, the textbook version, and one that is wrong.

`naive` makes one all-reduce per parameter after the backward pass, one after the other, then divides. It is correct and
slow: teaching material, and the baseline against which the others are measured. `parameter-averaging` is not equivalent
to one instance training on the global batch. It is here so that `trainjob verify` can show that.
"""

from __future__ import annotations

import torch

from trainjob.contract.errors import UserError
from trainjob.train.engines.base import Engine, EngineParts
from trainjob.train.engines.step import TorchEngine

_AVERAGE_EVERY_UPDATES = 4


def build(parts: EngineParts) -> Engine:
    """Return the engine that the settings name. Raises UserError for `single` in a world of several processes."""
    kinds = {"naive": NaiveEngine, "parameter-averaging": ParameterAveragingEngine}
    if parts.settings.engine in kinds:
        return kinds[parts.settings.engine](parts)
    if parts.world.size != 1:
        # Each of them would train alone.
        raise UserError("engine single is for one instance, and %d were started" % parts.world.size, "use ddp")
    return TorchEngine(parts)


class NaiveEngine(TorchEngine):
    """Sums every parameter's gradient over all instances."""

    def reduce_gradients(self) -> None:
        """Make every gradient the mean, or the sum, over all instances."""
        if self.world.size == 1:
            return
        with self.waiting():
            for weight in self.model.parameters():
                if weight.grad is not None:
                    torch.distributed.all_reduce(weight.grad)
                    if self.settings.reduction == "mean":
                        weight.grad /= self.world.size


class ParameterAveragingEngine(TorchEngine):
    """Every instance steps by its own gradients, and from time to time all take the mean of their weights."""

    def after_step(self, update: int) -> None:
        """Take the mean of all instances' weights after every fourth update."""
        if self.world.size == 1 or (update + 1) % _AVERAGE_EVERY_UPDATES:
            return
        with self.waiting(), torch.no_grad():
            for weight in self.model.parameters():
                torch.distributed.all_reduce(weight)
                weight.div_(self.world.size)
