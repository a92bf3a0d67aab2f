"""Horovod's DistributedOptimizer: gradients are reduced in the background, in the order in which they are ready.

What Horovod joins into one message depends on timing, and so does the last bit of a sum of three or more: a resumed
run equals an uninterrupted one within the float64 tolerance, not bit for bit.
"""

from __future__ import annotations

import time
from typing import Any

from trainjob.train.engines.base import Engine, Parts, State
from trainjob.train.engines.horovod_world import HorovodWorld
from trainjob.train.engines.state import model_tensors, optimizer_tensors
from trainjob.train.engines.step import TorchEngine


def build(parts: Parts) -> Engine:
    """Return the engine; all ranks must build it together."""
    if isinstance(parts.world, HorovodWorld):
        return HorovodEngine(parts, parts.world.horovod)
    return TorchEngine(parts)  # alone: there is nobody to reduce with


class HorovodEngine(TorchEngine):
    """Every instance ends each update with the same gradients, and so with the same weights."""

    def __init__(self, parts: Parts, horovod: Any) -> None:
        self._horovod = horovod
        super().__init__(parts)
        self._take_the_first_ranks_state()

    def build_optimizer(self, sparse: bool) -> Any:
        """Return the optimizer, with Horovod around it: it begins to reduce in the last backward pass of an update.

        Horovod adds gradients up over the passes and divides by the ranks alone; the loss was divided by the passes.
        """
        horovod = self._horovod
        return horovod.DistributedOptimizer(
            super().build_optimizer(sparse),
            named_parameters=list(self.model.named_parameters()),
            backward_passes_per_step=self.settings.accumulation,
            op=horovod.Average if self.settings.reduction == "mean" else horovod.Sum,
        )

    def reduce_gradients(self) -> None:
        """Wait for the gradients that are still under way."""
        start = time.perf_counter()
        self.world.waits = True
        self.optimizer.synchronize()
        self.world.waits = False
        self.communication_seconds += time.perf_counter() - start
        if self.settings.allow_unused_parameters:
            self._leave_out_unused()

    def _leave_out_unused(self) -> None:
        # Horovod gives a parameter that was not used a gradient of zeros, by which weight decay would change it.
        for weight in self.model.parameters():
            if weight.grad is not None and not bool(weight.grad.any()):
                weight.grad = None

    def step(self) -> None:
        """Change the weights by the reduced gradients, which clipping may have shortened."""
        with self.optimizer.skip_synchronize():
            super().step()

    def load(self, state: State) -> None:
        """Take up training from `state`, as rank 0 has it."""
        super().load(state)
        self._take_the_first_ranks_state()

    def _take_the_first_ranks_state(self) -> None:
        # Equal already, by the seed or by the checkpoint: Horovod's own rule is not to count on it.
        self.world.synchronise(list(model_tensors(self.model).values()))
        self.world.synchronise(list(optimizer_tensors(self.optimizer, self.model).values()))
