"""The rules of optimizers: what each makes of a weight, its gradient and its state, in place."""

from __future__ import annotations

import math
from typing import Any, Dict, NamedTuple

import torch

from poptorch.arithmetic import stored


class Types(NamedTuple):
    """The types that state is stored in."""

    first: torch.dtype = torch.float32
    second: torch.dtype = torch.float32


def sgd(weight: torch.Tensor, gradient: torch.Tensor, state: Dict[str, Any], how: Dict[str, Any], types: Types) -> None:
    """Follow the gradient, with a velocity that begins as zero."""
    gradient = _decayed(weight, gradient, how)
    if how["momentum"] or how["has_velocity"]:
        velocity = begun(state, "velocity", weight)
        velocity.mul_(how["momentum"]).add_(gradient, alpha=1 - how["dampening"])
        stored(velocity, types.first)
        gradient = velocity
    weight.add_(gradient, alpha=-how["lr"])


def adam(
    weight: torch.Tensor, gradient: torch.Tensor, state: Dict[str, Any], how: Dict[str, Any], types: Types
) -> None:
    """Follow the gradient's running mean, by its running size; weight decay is part of the gradient."""
    _adam(weight, _decayed(weight, gradient, how), state, how, types)


def adamw(
    weight: torch.Tensor, gradient: torch.Tensor, state: Dict[str, Any], how: Dict[str, Any], types: Types
) -> None:
    """As Adam, with the weight shrunk apart from it."""
    weight.mul_(1 - how["lr"] * how["weight_decay"])
    _adam(weight, gradient, state, how, types)


def lamb(
    weight: torch.Tensor, gradient: torch.Tensor, state: Dict[str, Any], how: Dict[str, Any], types: Types
) -> None:
    """As AdamW, with a step as long as the weight is, by the learning rate."""
    mean, size, first, second = _moments(weight, gradient, state, how, types)
    step = (mean / first).div_((size / second).sqrt_().add_(how["eps"])).add_(weight, alpha=how["weight_decay"])
    length, wanted = step.norm(), weight.norm().clamp(max=how["max_weight_norm"])
    trust = float(wanted / length) if wanted > 0 and length > 0 else 1.0
    weight.add_(step, alpha=-how["lr"] * trust)


def rmsprop(
    weight: torch.Tensor, gradient: torch.Tensor, state: Dict[str, Any], how: Dict[str, Any], types: Types
) -> None:
    """Follow the gradient by its running size."""
    gradient = _decayed(weight, gradient, how)
    # TensorFlow begins with ones.
    size = begun(state, "size", weight, 1.0 if how["use_tf_variant"] else 0.0)
    size.mul_(how["alpha"]).addcmul_(gradient, gradient, value=1 - how["alpha"])
    stored(size, types.second)
    spread = size
    if how["centered"]:
        mean = begun(state, "centre", weight)
        stored(mean.mul_(how["alpha"]).add_(gradient, alpha=1 - how["alpha"]), types.first)
        spread = size.addcmul(mean, mean, value=-1)
    # TensorFlow adds epsilon inside the root, and has the learning rate in the velocity.
    is_tf = how["use_tf_variant"]
    step = gradient / ((spread + how["eps"]).sqrt() if is_tf else spread.sqrt().add_(how["eps"]))
    rate = how["lr"]
    if is_tf:
        step, rate = step * how["lr"], 1.0
    if how["momentum"]:
        velocity = begun(state, "velocity", weight)
        step = stored(velocity.mul_(how["momentum"]).add_(step), types.first)
    weight.add_(step, alpha=-rate)


def _adam(
    weight: torch.Tensor, gradient: torch.Tensor, state: Dict[str, Any], how: Dict[str, Any], types: Types
) -> None:
    mean, size, first, second = _moments(weight, gradient, state, how, types)
    weight.addcdiv_(mean, (size.sqrt() / math.sqrt(second)).add_(how["eps"]), value=-how["lr"] / first)


def _moments(
    weight: torch.Tensor, gradient: torch.Tensor, state: Dict[str, Any], how: Dict[str, Any], types: Types
) -> Any:
    """Return the running mean and size of the gradient, and what each is to be divided by."""
    one, two = how["betas"]
    mean, size = begun(state, "mean", weight), begun(state, "size", weight)
    stored(mean.mul_(one).add_(gradient, alpha=1 - one), types.first)
    stored(size.mul_(two).addcmul_(gradient, gradient, value=1 - two), types.second)
    state["steps"] = state.get("steps", 0) + 1
    if not how["bias_correction"]:
        return mean, size, 1.0, 1.0
    return mean, size, 1 - one ** state["steps"], 1 - two ** state["steps"]


def _decayed(weight: torch.Tensor, gradient: torch.Tensor, how: Dict[str, Any]) -> Any:
    return gradient.add(weight, alpha=how["weight_decay"]) if how["weight_decay"] else gradient


def begun(state: Dict[str, Any], name: str, weight: torch.Tensor, begins_as: float = 0.0) -> Any:
    """Return a tensor of the state, which begins where there is none yet."""
    if name not in state:
        state[name] = torch.full_like(weight, begins_as)
    return state[name]


# By the name of the class, torch's own or poptorch.optim's.
RULES: Dict[str, Any] = {"SGD": sgd, "Adam": adam, "AdamW": adamw, "RMSprop": rmsprop, "LAMB": lamb}
