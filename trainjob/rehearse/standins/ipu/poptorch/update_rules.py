"""How a weight changes by its gradient: one function for each optimizer, with state of the declared types."""

from __future__ import annotations

import math
from typing import Any, Dict, NamedTuple

import torch

from poptorch.arithmetic import stored


class Types(NamedTuple):
    """What state is stored in."""

    first: torch.dtype = torch.float32
    second: torch.dtype = torch.float32


def sgd(weight: Any, gradient: Any, state: Dict[str, Any], how: Dict[str, Any], types: Types, _bias: bool) -> None:
    """Follow the gradient, with a velocity that begins as zero."""
    gradient = _decayed(weight, gradient, how)
    if how["momentum"]:
        velocity = _of(state, "velocity", weight)
        velocity.mul_(how["momentum"]).add_(gradient, alpha=1 - how["dampening"])
        stored(velocity, types.first)
        gradient = gradient.add(velocity, alpha=how["momentum"]) if how["nesterov"] else velocity
    weight.add_(gradient, alpha=-how["lr"])


def adam(weight: Any, gradient: Any, state: Dict[str, Any], how: Dict[str, Any], types: Types, bias: bool) -> None:
    """Follow the gradient's running mean, by its running size; weight decay is part of the gradient."""
    _adam(weight, _decayed(weight, gradient, how), state, how, types, bias)


def adamw(weight: Any, gradient: Any, state: Dict[str, Any], how: Dict[str, Any], types: Types, bias: bool) -> None:
    """As Adam, with the weight shrunk apart from it."""
    weight.mul_(1 - how["lr"] * how["weight_decay"])
    _adam(weight, gradient, state, how, types, bias)


def lamb(weight: Any, gradient: Any, state: Dict[str, Any], how: Dict[str, Any], types: Types, bias: bool) -> None:
    """As AdamW, with a step as long as the weight is, by the learning rate."""
    mean, size, first, second = _moments(weight, gradient, state, how, types, bias)
    step = (mean / first).div_((size / second).sqrt_().add_(how["eps"])).add_(weight, alpha=how["weight_decay"])
    length, wanted = step.norm(), weight.norm().clamp(max=how["max_weight_norm"])
    trust = float(wanted / length) if wanted > 0 and length > 0 else 1.0
    weight.add_(step, alpha=-how["lr"] * trust)


def rmsprop(weight: Any, gradient: Any, state: Dict[str, Any], how: Dict[str, Any], types: Types, _bias: bool) -> None:
    """Follow the gradient by its running size."""
    gradient = _decayed(weight, gradient, how)
    size = _of(state, "size", weight)
    size.mul_(how["alpha"]).addcmul_(gradient, gradient, value=1 - how["alpha"])
    stored(size, types.second)
    spread = size
    if how["centered"]:
        mean = _of(state, "mean", weight)
        stored(mean.mul_(how["alpha"]).add_(gradient, alpha=1 - how["alpha"]), types.first)
        spread = size.addcmul(mean, mean, value=-1)
    step = gradient / spread.sqrt().add_(how["eps"])
    if how["momentum"]:
        velocity = _of(state, "velocity", weight)
        step = stored(velocity.mul_(how["momentum"]).add_(step), types.first)
    weight.add_(step, alpha=-how["lr"])


def _adam(weight: Any, gradient: Any, state: Dict[str, Any], how: Dict[str, Any], types: Types, bias: bool) -> None:
    mean, size, first, second = _moments(weight, gradient, state, how, types, bias)
    weight.addcdiv_(mean, (size.sqrt() / math.sqrt(second)).add_(how["eps"]), value=-how["lr"] / first)


def _moments(weight: Any, gradient: Any, state: Dict[str, Any], how: Dict[str, Any], types: Types, bias: bool) -> Any:
    """Return the running mean and size of the gradient, and what each is to be divided by."""
    one, two = how["betas"]
    mean, size = _of(state, "mean", weight), _of(state, "size", weight)
    stored(mean.mul_(one).add_(gradient, alpha=1 - one), types.first)
    stored(size.mul_(two).addcmul_(gradient, gradient, value=1 - two), types.second)
    state["steps"] = state.get("steps", 0) + 1
    if not bias:
        return mean, size, 1.0, 1.0
    return mean, size, 1 - one ** state["steps"], 1 - two ** state["steps"]


def _decayed(weight: Any, gradient: Any, how: Dict[str, Any]) -> Any:
    return gradient.add(weight, alpha=how["weight_decay"]) if how["weight_decay"] else gradient


def _of(state: Dict[str, Any], name: str, weight: Any) -> Any:
    if name not in state:
        state[name] = torch.zeros_like(weight)
    return state[name]


# By the name of the class, torch's own or poptorch.optim's.
RULES: Dict[str, Any] = {"SGD": sgd, "Adam": adam, "AdamW": adamw, "RMSprop": rmsprop, "LAMB": lamb}
