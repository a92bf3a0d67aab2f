"""The optimizers as poptorch has them, with loss scaling and accumulators for 16 bits."""

from __future__ import annotations

from typing import Any, Callable, Dict

import torch

from trainjob.contract.errors import UserError
from trainjob.contract.job import TrainSettings

# The lessons' factor: float16 gradients of a loss near 1 are otherwise too small to be held.
LOSS_SCALING = 1000.0


def build(poptorch: Any, parameters: Any, settings: TrainSettings) -> Any:
    """Return the optimizer that the settings name. Raises UserError for one that the IPU engine does not have."""
    make = BY_NAME.get(settings.optimizer)
    if make is None:
        known = ", ".join(sorted(BY_NAME))
        raise UserError("engine ipu has no optimizer %s: known are %s" % (settings.optimizer, known))
    more: Dict[str, Any] = {} if settings.clip_norm is None else {"max_grad_norm": settings.clip_norm}
    if settings.precision.endswith(".16"):
        more.update(loss_scaling=LOSS_SCALING, accum_type=torch.float16)
    return make(poptorch.optim, parameters, settings, more)


def _sgd(optimizers: Any, parameters: Any, settings: TrainSettings, more: Dict[str, Any]) -> Any:
    how = {"momentum": settings.momentum, "weight_decay": settings.weight_decay}
    # Separate accumulators: the reduction is then the option's, and not folded into the velocity.
    return optimizers.SGD(parameters, lr=settings.learning_rate, use_combined_accum=False, **how, **more)


def _adamw(optimizers: Any, parameters: Any, settings: TrainSettings, more: Dict[str, Any]) -> Any:
    if "accum_type" in more:
        more.update(first_order_momentum_accum_type=torch.float16, second_order_momentum_accum_type=torch.float32)
    return optimizers.AdamW(parameters, lr=settings.learning_rate, weight_decay=settings.weight_decay, **more)


# A new optimizer is a new row.
BY_NAME: Dict[str, Callable[..., Any]] = {"sgd": _sgd, "adamw": _adamw}
