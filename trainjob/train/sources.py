"""Where samples come from by number: shards, tensors in memory, or a user's own map-style Dataset."""

from __future__ import annotations

import random
from typing import Any, Callable, List, Optional, Protocol, Tuple

import numpy as np
import torch

from trainjob.contract.errors import UserError
from trainjob.data.shards import Split
from trainjob.train.draws import HELD_OUT, Draws, key

# Gathers samples and changes them by draws of their own, before they go to the device: takes all images (samples,
# channels, height, width) uint8 as a map, the numbers of those wanted (n,), and n draws; gives (n, …) uint8.
Augment = Callable[[Any, Any, Draws], Any]


class Source(Protocol):
    """Samples by number. A source whose samples are small is asked for several updates at once."""

    sample_bytes: Optional[int]  # None: not known, one update at a time

    def __len__(self) -> int:
        """Return the number of samples."""

    def gather(self, indices: Any, draws: Optional[Draws]) -> Tuple[Any, Any]:
        """Return inputs and targets of the samples `indices` (n,), as tensors on the host.

        With `draws`, of the same length, they are augmented; without, they are as stored.
        """


class ShardSource:
    """Samples of one split of a prepared data set, gathered in whole batches from the map."""

    def __init__(self, split: Split, augment: Optional[Augment] = None) -> None:
        # A plain view of the map: indexing np.memmap itself costs microseconds a call.
        self._images = np.asarray(split.images)
        self._labels = np.asarray(split.labels)
        self._augment = augment
        self.sample_bytes: Optional[int] = self._images[:1].nbytes

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self._labels)

    def gather(self, indices: Any, draws: Optional[Draws]) -> Tuple[Any, Any]:
        """Return images (n, channels, height, width) uint8 and labels (n,) int64."""
        if self._augment is None or draws is None:
            images = self._images.take(indices, axis=0)
        else:
            images = self._augment(self._images, indices, draws)
        labels = self._labels.take(indices).astype(np.int64)
        return torch.from_numpy(images), torch.from_numpy(labels)


class TensorSource:
    """Samples that lie in memory as two tensors, (samples, …) each."""

    def __init__(self, inputs: Any, targets: Any) -> None:
        self._inputs = inputs
        self._targets = targets
        self.sample_bytes: Optional[int] = inputs[:1].numel() * inputs.element_size()

    def __len__(self) -> int:
        """Return the number of samples."""
        return int(self._inputs.shape[0])

    def gather(self, indices: Any, draws: Optional[Draws]) -> Tuple[Any, Any]:  # noqa: ARG002 - the Protocol's
        """Return the rows `indices` of both tensors."""
        rows = torch.from_numpy(indices)
        return self._inputs.index_select(0, rows), self._targets.index_select(0, rows)


class DatasetSource:
    """A user's own map-style Dataset, put together as torch's DataLoader does."""

    sample_bytes: Optional[int] = None

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self.dataset)

    def gather(self, indices: Any, draws: Optional[Draws]) -> Tuple[Any, Any]:
        """Return the samples collated, each after seeding torch, numpy and random for it alone.

        Without `draws` the seed is the sample's number: a Dataset that draws is evaluated on the same values each time.
        """
        asked = indices.tolist()
        seeds = [key(HELD_OUT, index) >> 32 for index in asked] if draws is None else draws.integers(0, 2**32).tolist()
        seeded = SeededDataset(self.dataset)
        return collate([seeded[pair] for pair in zip(seeds, asked)])


class SeededDataset:
    """A Dataset asked by (seed, index): what it draws while making a sample depends on the seed alone."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset

    def __getitem__(self, asked: Tuple[int, int]) -> Any:
        """Return the sample, after seeding every generator that it may use."""
        seed, index = asked
        seed_everything(seed)
        return self._dataset[index]


def seed_everything(seed: int) -> None:
    """Seed torch's CPU generator, numpy's and random's with `seed`, below 2³²."""
    torch.default_generator.manual_seed(seed)
    np.random.seed(seed)
    random.seed(seed)


def collate(samples: List[Any]) -> Tuple[Any, Any]:
    """Return inputs and targets of `samples`, as torch's own collate makes them. Raises UserError."""
    batch = torch.utils.data.dataloader.default_collate(samples)
    if not isinstance(batch, (list, tuple)) or len(batch) != 2:
        raise UserError(
            "a Dataset must give (input, target) for each sample, and this one gives %s: "
            "put several inputs into a tuple or a dictionary" % type(samples[0]).__name__
        )
    return batch[0], batch[1]
