"""An iterable Dataset that draws from torch's generator, and the blocks that are made of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import IterableDataset

from trainjob.train.samples.arithmetic import Arithmetic
from trainjob.train.samples.batches import blocks
from trainjob.train.samples.streams import as_source


class Shuffled(IterableDataset[Any]):
    """Draws its order through a buffer of three, and noise for each sample, from torch's generator."""

    def __init__(self, samples: int = 22) -> None:
        self.samples = samples
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[Any]:
        buffer = []
        for number in range(self.samples):
            buffer.append(number + 100 * self.epoch)
            if len(buffer) == 3:
                yield self.noisy(buffer.pop(int(torch.randint(3, ()))))
        for number in buffer:
            yield self.noisy(number)

    def noisy(self, number: Any) -> tuple[Any, ...]:
        return torch.tensor([float(number), float(torch.rand(()))]), number


def counted(instances: int = 1, samples: int = 22, micro_batches: int = 4, **changes: Any) -> Any:
    values = {"micro_batch": 2, "device_iterations": 1, "remainder": "drop", "seed": 3, **changes}
    return Arithmetic(samples=samples, micro_batches=micro_batches, instances=instances, **values)


def rows(instances: Any, start: int = 0, end: int = 6, workers: int = 0, **changes: Any) -> list[Any]:
    """Return the numbers and the noise of every sample of each update, instances one after the other."""
    parts = []
    for instance in range(instances):
        source = as_source(Shuffled(), 22)
        mine = blocks(source, counted(instances, **changes), instance, start, end, workers)
        parts.append([block.inputs.numpy() for block in mine])
    return [np.concatenate(update).tolist() for update in zip(*parts, strict=True)]


# A task on such a Dataset, and the job that trains it.
MINE = """
import torch
from torch import nn
from torch.utils.data import IterableDataset

class Rows(IterableDataset):
    def __iter__(self):
        for number in range(64):
            inputs = torch.rand(4)
            yield inputs, int(inputs.sum() > 2)

class Streamed:
    def build_model(self):
        return nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.2), nn.Linear(8, 2))

    def open_data(self, place):
        return Rows(), Rows()

    def loss(self, outputs, targets):
        return nn.functional.cross_entropy(outputs, targets)

    def metrics(self, outputs, targets):
        return {}
"""


JOB = {"task": "mine:Streamed", "data": None, "samples": 64, "precision": "64.64", "checkpoint_every": 5}
