"""ffnet-toy: the tutorial's small net of linear layers on random data, for measurements and demonstrations."""

from __future__ import annotations

from typing import List

import torch
from torch import nn
from torch.nn import functional

from trainjob.contract.errors import UserError
from trainjob.train.samples.draws import DATA, key
from trainjob.train.samples.sources import TensorSource
from trainjob.train.tasks.base import DataPlace, TaskData


class FfnetToy:
    """`inputs` numbers in, `layers` hidden layers of `width`, `outputs` numbers out, mean squared error."""

    def __init__(
        self, inputs: int = 100, layers: int = 3, width: int = 100, outputs: int = 1, samples: int = 4096
    ) -> None:
        if min(inputs, width, outputs, samples) < 1 or layers < 0:
            raise UserError(
                "ffnet-toy takes inputs, width, outputs and samples ≥ 1 and layers ≥ 0, and was given "
                "inputs=%d layers=%d width=%d outputs=%d samples=%d" % (inputs, layers, width, outputs, samples),
                "Correct it with --set, as in --set width=100",
            )
        self.inputs, self.layers, self.width, self.outputs, self.samples = inputs, layers, width, outputs, samples

    def build_model(self) -> nn.Module:
        """Return the net: (n, inputs) → (n, outputs)."""
        stack: List[nn.Module] = []
        size = self.inputs
        for _ in range(self.layers):
            stack += [nn.Linear(size, self.width), nn.ReLU()]
            size = self.width
        return nn.Sequential(*stack, nn.Linear(size, self.outputs))

    def open_data(self, place: DataPlace) -> TaskData:
        """Return random inputs (samples, inputs) and random targets (samples, outputs), the same on every instance."""
        generator = torch.Generator().manual_seed(key(place.seed, DATA) >> 1)
        inputs = torch.randn(self.samples, self.inputs, generator=generator)
        return TaskData(train=TensorSource(inputs, torch.randn(self.samples, self.outputs, generator=generator)))

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return the mean squared error."""
        return functional.mse_loss(outputs, targets)
