"""Models of one weight, and options for them."""

import torch
from torch import nn


class Scaled(nn.Module):
    """One weight, times the input; the loss is its sum."""

    def __init__(self, poptorch):
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(1.0))
        self._loss = poptorch.identity_loss

    def forward(self, inputs):
        outputs = self.weight * inputs
        return outputs, self._loss(outputs, reduction="sum")


def options_of(poptorch, iterations=1, replicas=1, accumulation=1, mode=None, reduction="Mean"):
    options = poptorch.Options().deviceIterations(iterations).replicationFactor(replicas)
    options.showCompilationProgressBar(False)
    options.Training.gradientAccumulation(accumulation)
    options.Training.accumulationAndReplicationReductionType(poptorch.ReductionType[reduction])
    return options if mode is None else options.outputMode(*mode)
