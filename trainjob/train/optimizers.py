"""Optimizers by name."""

from __future__ import annotations

from typing import Any, Callable, Dict

import torch

from trainjob.contract.errors import UserError
from trainjob.contract.job import TrainSettings


def _sgd(parameters: Any, settings: TrainSettings) -> torch.optim.Optimizer:
    return torch.optim.SGD(
        parameters, lr=settings.learning_rate, momentum=settings.momentum, weight_decay=settings.weight_decay
    )


def _adamw(parameters: Any, settings: TrainSettings) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=settings.learning_rate, weight_decay=settings.weight_decay)


# A new optimizer is a new row.
BY_NAME: Dict[str, Callable[[Any, TrainSettings], torch.optim.Optimizer]] = {"sgd": _sgd, "adamw": _adamw}


def build(parameters: Any, settings: TrainSettings) -> torch.optim.Optimizer:
    """Return the optimizer that the settings name, over `parameters`. Raises UserError."""
    make = BY_NAME.get(settings.optimizer)
    if make is None:
        raise UserError("there is no optimizer %s: known are %s" % (settings.optimizer, ", ".join(sorted(BY_NAME))))
    return make(parameters, settings)
