"""Precisions by the names that `input.model` bits give them, and the arithmetic that an engine needs for each.

Weights are always held in 32 bits or more, and 16-bit copies of them compute: on a GPU by autocast, with a gradient
scaler where float16's range is too small for gradients; on a CPU, which has no fast 16-bit arithmetic, by rounding
inputs, parameters and every layer's outputs to what 16 bits can hold. A rehearsal on a CPU thus meets the rounding
and the overflow that a GPU would, not its speed.
"""

from __future__ import annotations

import contextlib
from typing import Any, Callable, ContextManager, Dict, Iterator, List, NamedTuple, Optional

import torch

from trainjob.contract.errors import UserError
from trainjob.train import nested


class Types(NamedTuple):
    """What a precision's numbers are held in."""

    weights: torch.dtype
    inputs: torch.dtype
    layers: torch.dtype  # parameters as they compute, and what goes from layer to layer


# 64.64 is for verification: in float32 the order of a sum alone moves weights as much as a real mistake does.
BY_NAME: Dict[str, Types] = {
    "64.64": Types(torch.float64, torch.float64, torch.float64),
    "32.32": Types(torch.float32, torch.float32, torch.float32),
    "16.32": Types(torch.float32, torch.float16, torch.float32),
    "16.16": Types(torch.float32, torch.float16, torch.float16),
    "bf16": Types(torch.float32, torch.bfloat16, torch.bfloat16),
}


def types(precision: str) -> Types:
    """Return the types of `precision`. Raises UserError for one that torch engines don't have."""
    found = BY_NAME.get(precision)
    if found is None:
        known = ", ".join(BY_NAME)
        raise UserError("precision %s is not known to this engine on this device: it has %s" % (precision, known))
    return found


def floating_type(precision: str) -> torch.dtype:
    """Return the type that weights are held in. Raises UserError for a precision that torch engines don't have."""
    return types(precision).weights


def build(precision: str, model: torch.nn.Module, device: torch.device) -> "Numerics":
    """Return the arithmetic of `precision` for `model` on `device`. Raises UserError."""
    kinds = types(precision)
    if kinds.layers == kinds.weights:
        return Numerics(kinds)
    return Autocast(kinds, device) if device.type == "cuda" else Rounding(kinds, model)


class Numerics:
    """Full precision in the layers; the base of the others.

    An engine makes an update so: `with during_update():` all micro batches, each as `with during_forward():` the model
    on `inputs(…)` and the loss, then the backward pass of `scaled(loss)`; after it, with the gradients of all
    instances reduced, `step(optimizer, clip)`. Evaluation is the same without the last two.
    """

    def __init__(self, kinds: Types) -> None:
        self.kinds = kinds

    @property
    def is_plain(self) -> bool:
        """Return whether nothing is rounded or scaled anywhere: an engine may leave everything but `step` out."""
        return self.kinds.inputs == self.kinds.layers == self.kinds.weights

    def inputs(self, value: Any) -> Any:
        """Return the inputs of a micro batch, normalised before, with floating tensors rounded."""
        return rounded(value, self.kinds.inputs, self.kinds.weights)

    def during_update(self) -> ContextManager[Any]:
        """Return the context of an update's forward and backward passes, and of an evaluation."""
        return contextlib.nullcontext()

    def during_forward(self) -> ContextManager[Any]:
        """Return the context of one forward pass and its loss."""
        return contextlib.nullcontext()

    def scaled(self, loss: Any) -> Any:
        """Return the loss to go backward from."""
        return loss

    def step(self, optimizer: Any, clip: Optional[Callable[[], Any]] = None) -> None:
        """Change the weights by their gradients, which `clip` may shorten first."""
        if clip is not None:
            clip()
        optimizer.step()

    def state(self) -> Dict[str, Any]:
        """Return what a checkpoint must hold, as tensors by name."""
        return {}

    def load(self, state: Dict[str, Any]) -> None:
        """Take up training from `state`; where it has nothing of ours, from the beginning."""


class Autocast(Numerics):
    """16 bits on a GPU: torch chooses per operation, and float16's gradients are scaled into its range.

    An update whose gradients overflow is left out by `step`, and the scale is halved; the reduced gradients overflow on
    every instance or on none, so that all do the same.
    """

    def __init__(self, kinds: Types, device: torch.device) -> None:
        super().__init__(kinds)
        self._device = device.type
        self._scaler: Any = _gradient_scaler(device) if kinds.layers is torch.float16 else None

    def during_forward(self) -> ContextManager[Any]:
        """Return torch's autocast."""
        return torch.autocast(self._device, dtype=self.kinds.layers)

    def scaled(self, loss: Any) -> Any:
        """Return the loss times the scale."""
        return loss if self._scaler is None else self._scaler.scale(loss)

    def step(self, optimizer: Any, clip: Optional[Callable[[], Any]] = None) -> None:
        """Change the weights by their gradients, unless one of them overflowed."""
        if self._scaler is None:
            super().step(optimizer, clip)
            return
        if clip is not None:
            self._scaler.unscale_(optimizer)
            clip()
        self._scaler.step(optimizer)
        self._scaler.update()

    def state(self) -> Dict[str, Any]:
        """Return the scale, and the updates since it was last changed."""
        if self._scaler is None:
            return {}
        state = self._scaler.state_dict()
        return {name: torch.tensor(float(state[key]), dtype=torch.float64) for name, key in _SCALER_STATE.items()}

    def load(self, state: Dict[str, Any]) -> None:
        """Go on with the scale of `state`."""
        if self._scaler is not None and all(name in state for name in _SCALER_STATE):
            kept = self._scaler.state_dict()
            kept.update(scale=float(state["scale"]), _growth_tracker=int(state["updates_at_scale"]))
            self._scaler.load_state_dict(kept)


_SCALER_STATE = {"scale": "scale", "updates_at_scale": "_growth_tracker"}


def _gradient_scaler(device: torch.device) -> Any:
    if hasattr(torch.amp, "GradScaler"):
        return torch.amp.GradScaler(device.type)
    return torch.cuda.amp.GradScaler()  # torch < 2.3


class Rounding(Numerics):
    """16 bits as a CPU can show them: values that 16 bits can hold, computed with in 32.

    Gradients are not rounded: on a GPU the scaler keeps them in range.
    """

    def __init__(self, kinds: Types, model: torch.nn.Module) -> None:
        super().__init__(kinds)
        self._model = model
        for module in model.modules():
            if module is model or not any(True for _ in module.children()):
                module.register_forward_hook(self._round_outputs)

    @contextlib.contextmanager
    def during_update(self) -> Iterator[None]:
        """Let rounded parameters compute; what `step` changes are the exact ones."""
        parameters = list(self._model.parameters())
        exact: List[Any] = [parameter.data for parameter in parameters]
        try:
            for parameter in parameters:
                parameter.data = rounded(parameter.data, self.kinds.layers, parameter.dtype)
            yield
        finally:
            for parameter, values in zip(parameters, exact):
                parameter.data = values

    def _round_outputs(self, module: Any, inputs: Any, outputs: Any) -> Any:  # noqa: ARG002 - torch's form of a hook
        return rounded(outputs, self.kinds.layers, self.kinds.weights)


def rounded(value: Any, to: torch.dtype, held_in: torch.dtype) -> Any:
    """Return `value` with floating tensors rounded to what `to` can hold; gradients pass as if nothing was done."""
    if to == held_in:
        return value
    return nested.convert(lambda tensor: _round(tensor, to) if tensor.is_floating_point() else tensor, value)


def _round(tensor: Any, to: torch.dtype) -> Any:
    apply: Any = _Round.apply
    return apply(tensor, to)


class _Round(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: Any, to: torch.dtype) -> Any:  # noqa: ARG004
        """Return the tensor rounded, of the same type."""
        return tensor.to(to).to(tensor.dtype)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:  # noqa: ARG004
        """Return the gradient as it is."""
        return gradient, None
