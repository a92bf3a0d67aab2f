"""Models of one weight, and options for them."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


class Scaled(nn.Module):
    """One weight, times the input; the loss is its sum."""

    def __init__(self, poptorch: Any) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(1.0))
        self._loss = poptorch.identity_loss

    def forward(self, inputs: Any) -> tuple[Any, ...]:
        outputs = self.weight * inputs
        return outputs, self._loss(outputs, reduction="sum")


def options_of(
    poptorch: Any,
    iterations: int = 1,
    replicas: int = 1,
    accumulation: int = 1,
    mode: Any = None,
    reduction: str = "Mean",
) -> Any:
    options = poptorch.Options().deviceIterations(iterations).replicationFactor(replicas)
    options.showCompilationProgressBar(False)
    options.Training.gradientAccumulation(accumulation)
    options.Training.accumulationAndReplicationReductionType(poptorch.ReductionType[reduction])
    return options if mode is None else options.outputMode(*mode)
