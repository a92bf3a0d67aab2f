"""Tasks that are wrong in one way each, and two that are right though they look suspicious.

Copied into the project of a test: `--task wrong_tasks:Augmented`.
"""

from __future__ import annotations

import os
import time
from typing import Any

import torch
from torch import nn
from torch.utils.data import Dataset

RANK, WORLD_SIZE = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
SAMPLES = 32


class Numbers(Dataset[Any]):
    """Sample i is drawn from i alone."""

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: Any) -> tuple[Any, ...]:
        generator = torch.Generator().manual_seed(index)
        return torch.randn(6, generator=generator), index % 3


class Right:
    """Nothing is wrong with this one: BatchNorm and dropout."""

    def build_model(self) -> Any:
        return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Dropout(0.2), nn.Linear(8, 3))

    def open_data(self, place: Any) -> tuple[Any, ...]:
        return Numbers(), None

    def loss(self, outputs: Any, targets: Any) -> Any:
        return nn.functional.cross_entropy(outputs, targets)


class Shuffled(Right):
    """Every rank shuffles for itself."""

    class Data(Numbers):
        order = torch.randperm(SAMPLES, generator=torch.Generator().manual_seed(RANK)).tolist()

        def __getitem__(self, index: Any) -> Any:
            return super().__getitem__(self.order[index])

    def open_data(self, place: Any) -> tuple[Any, ...]:
        return self.Data(), None


class Padded(Right):
    """Rank 1 fills up its share with samples of the beginning."""

    class Data(Numbers):
        def __getitem__(self, index: Any) -> Any:
            return super().__getitem__(index - 24 if RANK and index >= 24 else index)

    def open_data(self, place: Any) -> tuple[Any, ...]:
        return self.Data(), None


class Uneven(Right):
    """Rank 1 gives a sample less than it is asked for."""

    class Data:
        sample_bytes = None

        def __len__(self) -> int:
            return SAMPLES

        def gather(self, indices: Any, draws: Any) -> tuple[Any, ...]:
            rows = [Numbers()[index] for index in indices.tolist()]
            inputs, targets = zip(*rows[: len(rows) - RANK], strict=True)
            return torch.stack(inputs), torch.tensor(targets)

    def open_data(self, place: Any) -> tuple[Any, ...]:
        return self.Data(), None


class Augmented(Right):
    """The augmentation draws from a generator that every rank seeds for itself."""

    class Data(Numbers):
        generator = torch.Generator().manual_seed(RANK)

        def __getitem__(self, index: Any) -> tuple[Any, ...]:
            inputs, target = super().__getitem__(index)
            return inputs + torch.rand(6, generator=self.generator), target

    def open_data(self, place: Any) -> tuple[Any, ...]:
        return self.Data(), None


class Scaled(Right):
    """The loss is multiplied for DDP's division, which the runtime has already thought of."""

    def loss(self, outputs: Any, targets: Any) -> Any:
        return super().loss(outputs, targets) * WORLD_SIZE


class OwnDropout(Right):
    """Dropout by a generator of the layer's own."""

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.generator = torch.Generator().manual_seed(0)

        def forward(self, inputs: Any) -> Any:
            return inputs * torch.rand(inputs.shape, generator=self.generator).round().to(inputs.dtype)

    def build_model(self) -> Any:
        return nn.Sequential(nn.Linear(6, 8), self.Layer(), nn.Linear(8, 3))


class SyncBatchNorm(nn.Module):
    """torch's of this name takes no CPU tensors: the same statistics, over all ranks."""

    def forward(self, inputs: Any) -> Any:
        mean = inputs.detach().mean(0) / WORLD_SIZE
        if WORLD_SIZE > 1:
            torch.distributed.all_reduce(mean)
        return inputs - mean


class Synchronised(Right):
    def build_model(self) -> Any:
        return nn.Sequential(nn.Linear(6, 8), SyncBatchNorm(), nn.Tanh(), nn.Linear(8, 3))


class RunningNorm(nn.Module):
    """Normalises by running statistics while training."""

    mean: torch.Tensor

    def __init__(self, features: Any) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(features))

    def forward(self, inputs: Any) -> Any:
        if self.training:
            with torch.no_grad():
                self.mean = self.mean * 0.9 + inputs.mean(0) * 0.1
        return inputs - self.mean


class Running(Right):
    def build_model(self) -> Any:
        return nn.Sequential(nn.Linear(6, 8), RunningNorm(8), nn.Tanh(), nn.Linear(8, 3))


class ByRank(Right):
    """A model that asks which rank it is on: no clue fits."""

    class Layer(nn.Module):
        def forward(self, inputs: Any) -> Any:
            return inputs.sin() if RANK else inputs.tanh()

    def build_model(self) -> Any:
        return nn.Sequential(nn.Linear(6, 8), self.Layer(), nn.Linear(8, 3))


class Late(Right):
    """Rank 1 weighs its loss a little differently, from the second update on."""

    calls = 0

    def loss(self, outputs: Any, targets: Any) -> Any:
        Late.calls += 1
        return super().loss(outputs, targets) * (1 + 1e-5 * RANK * (Late.calls > 3))


class Chaotic(Right):
    """Nothing is wrong with this one: the last bit of an activation decides what becomes of it."""

    class Layer(nn.Module):
        def forward(self, inputs: Any) -> Any:
            wild = inputs.detach().sigmoid()
            for _ in range(40):
                wild = 3.99 * wild * (1 - wild)
            return inputs * wild

    def build_model(self) -> Any:
        return nn.Sequential(nn.Linear(6, 8), self.Layer(), nn.Linear(8, 3))


class Unhurried(Right):
    """Right, and slow enough to be met at any update."""

    def loss(self, outputs: Any, targets: Any) -> Any:
        time.sleep(0.02)
        return super().loss(outputs, targets)


class Counting(Right):
    """Counts updates where no checkpoint keeps the number."""

    calls = 0

    def loss(self, outputs: Any, targets: Any) -> Any:
        Counting.calls += 1
        return super().loss(outputs, targets) * (1 + Counting.calls % 7)


class Failing(Right):
    def loss(self, outputs: Any, targets: Any) -> None:
        raise RuntimeError("the loss is out of stock")
