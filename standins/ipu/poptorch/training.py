"""A training program: gradients of all micro batches and replicas, summed over instances, then one step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, List

import torch
from torch import nn
from trainjob_standins.meeting import Group, group

from poptorch import values
from poptorch.arithmetic import LARGEST_HALF, as_float, refuse_not_finite, stored
from poptorch.device_optimizer import DeviceOptimizer
from poptorch.enums import OutputMode
from poptorch.grouping import GroupedWeight
from poptorch.losses import the_loss
from poptorch.program import Program

if TYPE_CHECKING:
    from poptorch.options import Options

_GRADIENT, _UPDATED = _SEEN = ("Gradient___", "UpdatedVar___")
_FINAL_SCALE = "finalLossScale"
_LARGE = LARGEST_HALF / 16  # of a gradient, where automatic loss scaling counts: PopART's own


class TrainingProgram(Program):
    """The model with its optimizer on the device."""

    trains = True

    def __init__(
        self,
        model: nn.Module,
        options: Options,
        mode: OutputMode,
        training: Dict[nn.Module, bool],
        optimizer: torch.optim.Optimizer,
    ) -> None:
        super().__init__(model, options, mode, training)
        self._adapts_scale = options.Training.auto_loss_scaling
        prefix = "model." * bool(options.Jit.trace_model)
        named: Dict[str, torch.Tensor] = dict(model.named_parameters())
        self.optimizer = DeviceOptimizer(optimizer, named, self.half, self._adapts_scale, prefix)
        self._last_scale = self.optimizer.final_loss_scale
        self._magnitudes = torch.zeros(
            2
        )  # of an update's float16 gradients: how many are large, and how many there are
        self._last_gradients: List[Any] = []
        self._of_replicas: Dict[int, Any] = {}  # gradients of replicas that are through, where they add up in float16

    def hold_apart(self, grouped: List[GroupedWeight]) -> None:
        """Have groups of replicas hold these weights apart. Raises Error if the optimizer takes norms of weights."""
        super().hold_apart(grouped)
        self.optimizer.refuse_norms(of_groups=bool(grouped))

    def after_forward(self, outputs: object, marked: List[torch.Tensor]) -> None:
        """Add the micro batch's gradients."""
        loss = as_float(the_loss(marked, values.flat(outputs)))
        scale = self.optimizer.final_loss_scale
        if self._is_running_mean():
            scale /= self.shape.accumulation
        counted = [weight for weight in self.optimizer.weights if self._adapts_scale and self.half[id(weight)]]
        earlier = [weight.grad for weight in counted]
        for weight in counted:
            weight.grad = None
        if loss.requires_grad:
            loss.backward(torch.full_like(loss, scale))
        for weight, gradient in zip(counted, earlier):
            if weight.grad is not None:
                is_large = weight.grad.abs() > _LARGE
                self._magnitudes += torch.tensor([float(is_large.sum()), float(is_large.numel())])
            weight.grad = (
                gradient if weight.grad is None else weight.grad if gradient is None else gradient + weight.grad
            )
        refuse_not_finite([weight.grad for weight in self._with_gradient()], "the gradients")
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
        self._last_gradients = [None if weight.grad is None else weight.grad.clone() for weight in self.weights]
        self._last_scale = self.optimizer.final_loss_scale
        self.optimizer.step()
        if self._adapts_scale:
            if self._instances.size > 1:
                self._instances.sum(self._magnitudes)
            self.optimizer.adapt_scale(*self._magnitudes.tolist())
            self._magnitudes = torch.zeros(2)
        for weight in self.weights:
            weight.grad = None

    def tensor_names(self) -> List[str]:
        """Return the names of weights, gradients and updated weights."""
        names = super().tensor_names()
        return [*names, *(prefix + name for prefix in _SEEN for name in names), *[_FINAL_SCALE] * self._adapts_scale]

    def tensor(self, name: str) -> Any:
        """Return a tensor by name: a gradient as the last step took it, else a weight. Raises Error."""
        if self._adapts_scale and name == _FINAL_SCALE:
            return torch.tensor(self._last_scale)
        kind, separator, weight = name.partition("___")
        names = super().tensor_names()
        if kind + separator != _GRADIENT or weight not in names:
            return super().tensor(weight if kind + separator == _UPDATED else name)
        gradient = self._last_gradients[names.index(weight)] if self._last_gradients else None
        return torch.zeros_like(self._device[names.index(weight)]) if gradient is None else gradient

    def _reduce(self, gradients: List[torch.Tensor]) -> None:
        """Make `gradients` the sum, or the mean, over all micro batches of all replicas of all instances."""
        instances, divisor = self._instances, self.optimizer.final_loss_scale
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


def _instances(options: Options) -> Group:
    # poptorch.Options alone, even of several processes, gives a process no part in the others' replicas.
    if not options.reduces_over_instances:
        return Group("alone", 0, 1)
    return group("poptorch", options.Distributed.processId, options.Distributed.numProcesses)
