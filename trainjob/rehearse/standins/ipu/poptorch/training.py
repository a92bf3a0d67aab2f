"""A training program: gradients of all micro batches and replicas, summed over instances, then one step."""

from __future__ import annotations

from typing import Any, Dict, List

import torch
from torch import nn
from trainjob_standins.meeting import Group, group

from poptorch import values
from poptorch.arithmetic import stored
from poptorch.device_optimizer import DeviceOptimizer
from poptorch.enums import OutputMode
from poptorch.losses import the_loss
from poptorch.program import Program


class TrainingProgram(Program):
    """The model with its optimizer on the device."""

    trains = True

    def __init__(self, model: nn.Module, options: Any, mode: OutputMode, optimizer: Any) -> None:
        super().__init__(model, options, mode)
        self.optimizer = DeviceOptimizer(optimizer, self.device_weight)
        self._of_replicas: Dict[int, Any] = {}  # gradients of replicas that are through, where they add up in float16

    def after_forward(self, outputs: Any, marked: List[Any]) -> None:
        """Add the micro batch's gradients."""
        loss = the_loss(marked, values.flat(outputs))
        scale = self.optimizer.loss_scaling
        if self._is_running_mean():
            scale /= self.shape.accumulation
        loss.backward(torch.full_like(loss, scale))
        if self.optimizer.accumulators_are_half:
            for weight in self._with_gradient():
                stored(weight.grad, torch.float16)

    def after_replica(self) -> None:
        """Put the replica's gradients aside where float16 makes it matter whose sum they are."""
        if not self.optimizer.accumulators_are_half or self.shape.replicas == 1:
            return
        for weight in self._with_gradient():
            before = self._of_replicas.get(id(weight))
            self._of_replicas[id(weight)] = weight.grad if before is None else before.add_(weight.grad)
            weight.grad = None

    def end_of_iteration(self) -> None:
        """Sum over replicas and instances, and step."""
        for weight in self.optimizer.weights:
            weight.grad = self._of_replicas.pop(id(weight), weight.grad)
        self._reduce([weight.grad for weight in self._with_gradient()])
        self.optimizer.step(self.half)
        for weight in self.optimizer.weights:
            weight.grad = None

    def _reduce(self, gradients: List[Any]) -> None:
        """Make `gradients` the sum, or the mean, over all micro batches of all replicas of all instances."""
        instances, divisor = self._instances, self.optimizer.loss_scaling
        if self.options.is_mean():
            divisor *= self.shape.replicas * instances.size
            divisor *= 1 if self._is_running_mean() else self.shape.accumulation
        if instances.size > 1:
            together: Any = torch.cat([gradient.reshape(-1) for gradient in gradients])
            instances.sum(together)
            parts = together.split([gradient.numel() for gradient in gradients])
            for gradient, part in zip(gradients, parts):
                gradient.copy_(part.view_as(gradient))
        for gradient in gradients:
            gradient.div_(divisor)

    @property
    def _instances(self) -> Group:
        # Met at the first update: whoever only compiles, compiles alone.
        return _instances(self.options)

    def _is_running_mean(self) -> bool:
        return bool(self.options.is_running_mean(self.optimizer.accumulators_are_half))

    def _with_gradient(self) -> List[Any]:
        return [weight for weight in self.optimizer.weights if weight.grad is not None]


def _instances(options: Any) -> Group:
    # poptorch.Options alone, even of several processes, gives a process no part in the others' replicas.
    if not options.reduces_over_instances:
        return Group("alone", 0, 1)
    return group("poptorch", options.Distributed.processId, options.Distributed.numProcesses)
