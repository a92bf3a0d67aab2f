"""Precisions, named by the bits of inputs and model (`16.32`), and the arithmetic that an engine needs for each.

Weights are always kept in 32 bits or more, and 16-bit copies of them compute. On a GPU that is autocast, with a scaler
for gradients where float16's range is too small for them. A CPU has no fast 16-bit arithmetic, so there the inputs, the
parameters and every layer's outputs are rounded to what 16 bits can hold: a rehearsal on a CPU has the rounding and the
overflow of a GPU, but not its speed.
"""

from __future__ import annotations

import contextlib
from typing import Any, Callable, ContextManager, Dict, Iterator, List, NamedTuple, Optional, Tuple

import torch

from trainjob.contract.errors import UserError
from trainjob.train.recording.state import Tensors
from trainjob.train.samples import nested
from trainjob.train.samples.nested import Nested


class Types(NamedTuple):
    """The types of a precision."""

    weights: torch.dtype
    inputs: torch.dtype
    layers: torch.dtype  # of parameters when they compute, and of values between layers


# 64.64 is for verification: in float32 the order of a sum alone moves weights as much as a real mistake does.
BY_NAME: Dict[str, Types] = {
    "64.64": Types(torch.float64, torch.float64, torch.float64),
    "32.32": Types(torch.float32, torch.float32, torch.float32),
    "16.32": Types(torch.float32, torch.float16, torch.float32),
    "16.16": Types(torch.float32, torch.float16, torch.float16),
    "bf16": Types(torch.float32, torch.bfloat16, torch.bfloat16),
}


def types(precision: str) -> Types:
    """Return the types of `precision`. Raises UserError for one that torch's engines don't have."""
    kinds = BY_NAME.get(precision)
    if kinds is None:
        names = ", ".join(BY_NAME)
        raise UserError("this engine has no precision %s on this device" % precision, "choose one of %s" % names)
    return kinds


def floating_type(precision: str) -> torch.dtype:
    """Return the type of the weights. Raises UserError for a precision that torch's engines don't have."""
    return types(precision).weights


def build(precision: str, model: torch.nn.Module, device: torch.device) -> "Numerics":
    """Return the arithmetic of `precision` for `model` on `device`. Raises UserError."""
    kinds = types(precision)
    if kinds.layers == kinds.weights:
        return Numerics(kinds)
    return Autocast(kinds, device) if device.type == "cuda" else Rounding(kinds, model)


class Numerics:
    """Full precision in the layers; the base of the others.

    How an engine makes an update: within `during_update()` all micro batches; for each, within `during_forward()` the
    model on `inputs(…)` and the loss, then the backward pass of `scaled(loss)`. When the gradients of all instances
    are reduced, `step(optimizer, clip)`. Evaluation does the same without the last two.
    """

    def __init__(self, kinds: Types) -> None:
        self.kinds = kinds

    def inputs(self, value: Nested) -> Nested:
        """Return the normalised inputs of a micro batch, with floating tensors rounded."""
        return rounded(value, self.kinds.inputs, self.kinds.weights)

    def during_update(self) -> ContextManager[Any]:
        """Return the context of an update's forward and backward passes, and of an evaluation."""
        return contextlib.nullcontext()

    def during_forward(self) -> ContextManager[Any]:
        """Return the context of one forward pass and its loss."""
        return contextlib.nullcontext()

    def scaled(self, loss: torch.Tensor) -> torch.Tensor:
        """Return the loss from which the backward pass starts."""
        return loss

    def step(self, optimizer: torch.optim.Optimizer, clip: Optional[Callable[[], None]] = None) -> None:
        """Update the weights with their gradients, after `clip` if one is given."""
        if clip is not None:
            clip()
        optimizer.step()

    def state(self) -> Tensors:
        """Return what a checkpoint must hold, as tensors by name."""
        return {}

    def load(self, state: Tensors) -> None:
        """Continue with `state`; start over if it holds nothing of this precision."""


# The gradient scaler's state: name in a checkpoint → its own key.
_SCALER_STATE = {"scale": "scale", "updates_at_scale": "_growth_tracker"}


class Autocast(Numerics):
    """16 bits on a GPU: torch chooses per operation, and float16's gradients are scaled into its range.

    `step` skips an update whose gradients overflow, and halves the scale. Reduced gradients overflow on every instance
    or on none, so all do the same.
    """

    def __init__(self, kinds: Types, device: torch.device) -> None:
        super().__init__(kinds)
        self._device = device.type
        self._scaler: Any = None
        if kinds.layers is torch.float16:
            is_new = hasattr(torch.amp, "GradScaler")  # since torch 2.3
            self._scaler = torch.amp.GradScaler(device.type) if is_new else torch.cuda.amp.GradScaler()

    def during_forward(self) -> ContextManager[Any]:
        """Return torch's autocast."""
        return torch.autocast(self._device, dtype=self.kinds.layers)

    def scaled(self, loss: torch.Tensor) -> torch.Tensor:
        """Return the loss times the scale."""
        return loss if self._scaler is None else self._scaler.scale(loss)

    def step(self, optimizer: torch.optim.Optimizer, clip: Optional[Callable[[], None]] = None) -> None:
        """Update the weights with their gradients, unless one of them overflowed."""
        if self._scaler is None:
            super().step(optimizer, clip)
            return
        if clip is not None:
            self._scaler.unscale_(optimizer)
            clip()
        self._scaler.step(optimizer)
        self._scaler.update()

    def state(self) -> Tensors:
        """Return the scale, and the number of updates since it last changed."""
        if self._scaler is None:
            return {}
        state = self._scaler.state_dict()
        return {name: torch.tensor(float(state[key]), dtype=torch.float64) for name, key in _SCALER_STATE.items()}

    def load(self, state: Tensors) -> None:
        """Continue with the scale of `state`."""
        if self._scaler is not None and all(name in state for name in _SCALER_STATE):
            kept = self._scaler.state_dict()
            kept.update(scale=float(state["scale"]), _growth_tracker=int(state["updates_at_scale"]))
            self._scaler.load_state_dict(kept)


class Rounding(Numerics):
    """16 bits simulated on a CPU: values that 16 bits can hold, computed in 32.

    Gradients are not rounded, because on a GPU the scaler keeps them in range.
    """

    def __init__(self, kinds: Types, model: torch.nn.Module) -> None:
        super().__init__(kinds)
        self._model = model
        for module in model.modules():
            if module is model or not any(True for _ in module.children()):
                module.register_forward_hook(
                    lambda _module, _inputs, outputs: rounded(outputs, kinds.layers, kinds.weights)
                )

    @contextlib.contextmanager
    def during_update(self) -> Iterator[None]:
        """Compute with rounded parameters; `step` updates the exact ones."""
        parameters = list(self._model.parameters())
        exact: List[torch.Tensor] = [parameter.data for parameter in parameters]
        try:
            for parameter in parameters:
                parameter.data = rounded(parameter.data, self.kinds.layers, parameter.dtype)
            yield
        finally:
            for parameter, values in zip(parameters, exact):
                parameter.data = values


def rounded(value: Nested, to: torch.dtype, kept_in: torch.dtype) -> Nested:
    """Return `value` with floating tensors rounded to what `to` can hold; gradients pass through unchanged."""
    if to == kept_in:
        return value
    apply: Callable[[torch.Tensor, torch.dtype], torch.Tensor] = _Round.apply
    return nested.convert(lambda tensor: apply(tensor, to) if tensor.is_floating_point() else tensor, value)


class _Round(torch.autograd.Function):
    @staticmethod
    def forward(ctx: object, tensor: torch.Tensor, to: torch.dtype) -> torch.Tensor:  # noqa: ARG004
        """Return the rounded tensor, with its type unchanged."""
        return tensor.to(to).to(tensor.dtype)

    @staticmethod
    def backward(ctx: object, gradient: torch.Tensor) -> Tuple[torch.Tensor, None]:  # noqa: ARG004
        """Return the gradient unchanged."""
        return gradient, None
