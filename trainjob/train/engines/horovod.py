"""Horovod's DistributedOptimizer: gradients are reduced in the background, in the order in which they are ready.

Which gradients Horovod fuses into one message depends on timing, and with three or more ranks so does the last bit of a
sum. A resumed run therefore equals an uninterrupted one within the float64 tolerance, but not bit for bit.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

from trainjob.train.engines.base import Engine, EngineParts
from trainjob.train.engines.horovod_world import HorovodWorld
from trainjob.train.engines.step import TorchEngine
from trainjob.train.recording.state import State, model_tensors, optimizer_tensors


def build(parts: EngineParts) -> Engine:
    """Return the engine; all ranks must build it together."""
    if isinstance(parts.world, HorovodWorld):
        return HorovodEngine(parts, parts.world.horovod)
    return TorchEngine(parts)  # a single rank has nothing to reduce


class HorovodEngine(TorchEngine):
    """Every instance ends each update with the same gradients, and so with the same weights."""

    def __init__(self, parts: EngineParts, horovod: ModuleType) -> None:
        self._horovod = horovod
        super().__init__(parts)
        self._take_the_first_ranks_state()

    def build_optimizer(self, sparse: bool) -> Any:
        """Return the optimizer, wrapped by Horovod, which starts reducing in the last backward pass of an update.

        Horovod sums gradients over the passes and divides by the ranks alone; the loss is divided by the passes.
        """
        horovod = self._horovod
        return horovod.DistributedOptimizer(
            super().build_optimizer(sparse),
            named_parameters=list(self.model.named_parameters()),
            backward_passes_per_step=self.settings.accumulation,
            op=horovod.Average if self.settings.reduction == "mean" else horovod.Sum,
        )

    def reduce_gradients(self) -> None:
        """Wait for the gradients still being reduced."""
        with self.waiting():
            self.optimizer.synchronize()
        if self.settings.allow_unused_parameters:
            # Horovod gives an unused parameter a gradient of zeros, with which weight decay would change it.
            for weight in self.model.parameters():
                if weight.grad is not None and not bool(weight.grad.any()):
                    weight.grad = None

    def step(self) -> None:
        """Update the weights with the reduced gradients, which may have been clipped."""
        with self.optimizer.skip_synchronize():
            super().step()

    def load(self, state: State) -> None:
        """Continue training from `state`, as rank 0 has it."""
        super().load(state)
        self._take_the_first_ranks_state()

    def _take_the_first_ranks_state(self) -> None:
        # They are equal already, by the seed or by the checkpoint, but Horovod advises not to rely on that.
        self.world.synchronise(list(model_tensors(self.model).values()))
        self.world.synchronise(list(optimizer_tensors(self.optimizer, self.model).values()))
