"""Sources of samples by number: shards, tensors in memory, or a user's own map-style Dataset."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Callable, List, Optional, Protocol, Tuple

import numpy as np
import torch

from trainjob.contract.errors import UserError
from trainjob.data.shards import Split
from trainjob.train.samples.draws import HELD_OUT, Draws, key
from trainjob.train.samples.nested import Nested

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from trainjob.train.samples.augmentation import Images
    from trainjob.train.samples.draws import Indices

# Gathers and augments samples on the host: takes all images (samples, channels, height, width) as a memory map, the
# numbers of those to gather (n,) and n draws; returns (n, …).
Augment = Callable[["Images", "Indices", Draws], "Images"]


class MapDataset(Protocol):
    """A user's own map-style Dataset."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> object: ...


class Source(Protocol):
    """Samples by number. If they are small, those of several updates are gathered at once."""

    sample_bytes: Optional[int]  # None: unknown, so gather one update at a time

    def __len__(self) -> int:
        """Return the number of samples."""

    def gather(self, indices: Indices, draws: Optional[Draws]) -> Tuple[Nested, Nested]:
        """Return inputs and targets of samples `indices` (n,), as tensors on the host.

        With `draws`, of the same length, they are augmented; without, they are as stored.
        """


class ShardSource:
    """Samples of one split of a prepared data set, gathered in whole batches from the memory map."""

    def __init__(self, split: Split, augment: Optional[Augment] = None) -> None:
        # A plain view of the map, because indexing np.memmap itself costs microseconds per call.
        self._images = np.asarray(split.images)
        self._labels = np.asarray(split.labels)
        self._augment = augment
        self.sample_bytes: Optional[int] = self._images[:1].nbytes

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self._labels)

    def gather(self, indices: Indices, draws: Optional[Draws]) -> Tuple[Nested, Nested]:
        """Return images (n, channels, height, width) uint8 and labels (n,) int64."""
        if self._augment is None or draws is None:
            images = self._images.take(indices, axis=0)
        else:
            images = self._augment(self._images, indices, draws)
        labels = self._labels.take(indices).astype(np.int64)
        return torch.from_numpy(images), torch.from_numpy(labels)


class TokenSource:
    """Stretches of `context` tokens; each sample's targets are its inputs moved on by one token."""

    def __init__(self, tokens: NDArray[np.generic], context: int) -> None:
        self._tokens = np.asarray(tokens)
        self._places = np.arange(context + 1)
        self.sample_bytes: Optional[int] = 2 * context * 8

    def __len__(self) -> int:
        """Return the number of samples: the last one has a token to predict at its end."""
        return max(0, (len(self._tokens) - 1) // (len(self._places) - 1))

    def gather(self, indices: Indices, draws: Optional[Draws]) -> Tuple[Nested, Nested]:  # noqa: ARG002 - part of the Protocol
        """Return tokens (n, context) int64, and those that follow them, of the same shape."""
        starts = indices * (len(self._places) - 1)
        rows = self._tokens.take(starts[:, None] + self._places).astype(np.int64)
        return torch.from_numpy(rows[:, :-1].copy()), torch.from_numpy(rows[:, 1:].copy())


class TensorSource:
    """Samples in memory, as two tensors of shape (samples, …)."""

    def __init__(self, inputs: torch.Tensor, targets: torch.Tensor) -> None:
        self._inputs = inputs
        self._targets = targets
        self.sample_bytes: Optional[int] = inputs[:1].numel() * inputs.element_size()

    def __len__(self) -> int:
        """Return the number of samples."""
        return int(self._inputs.shape[0])

    def gather(self, indices: Indices, draws: Optional[Draws]) -> Tuple[Nested, Nested]:  # noqa: ARG002 - part of the Protocol
        """Return the rows `indices` of both tensors."""
        rows = torch.from_numpy(indices)
        return self._inputs.index_select(0, rows), self._targets.index_select(0, rows)


class DatasetSource:
    """A user's own map-style Dataset, collated like torch's DataLoader does."""

    sample_bytes: Optional[int] = None

    def __init__(self, dataset: MapDataset) -> None:
        self.dataset = dataset

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self.dataset)

    def gather(self, indices: Indices, draws: Optional[Draws]) -> Tuple[Nested, Nested]:
        """Return the collated samples, each made after seeding torch, numpy and random for it alone.

        Without `draws` the seed is the sample's number, so a random Dataset is evaluated on the same values each time.
        """
        numbers: List[int] = indices.tolist()
        seeds = [key(HELD_OUT, index) >> 32 for index in numbers] if draws is None else draws.below(2**32).tolist()
        seeded = SeededDataset(self.dataset)
        return collate([seeded[pair] for pair in zip(seeds, numbers)])


class SeededDataset:
    """A Dataset indexed by (seed, index): the random numbers for a sample depend on the seed alone."""

    def __init__(self, dataset: MapDataset) -> None:
        self._dataset = dataset

    def __getitem__(self, pair: Tuple[int, int]) -> object:
        """Return the sample, after seeding every generator that it may use."""
        seed, index = pair
        seed_everything(seed)
        return self._dataset[index]


def seed_everything(seed: int) -> None:
    """Seed the generators of torch (on the CPU), numpy and random with `seed`, which is below 2³²."""
    torch.default_generator.manual_seed(seed)
    np.random.seed(seed)
    random.seed(seed)


def collate(samples: List[object]) -> Tuple[Nested, Nested]:
    """Return inputs and targets of `samples`, as torch's own collate function makes them. Raises UserError."""
    batch = torch.utils.data.dataloader.default_collate(samples)
    if not isinstance(batch, (list, tuple)) or len(batch) != 2:
        raise UserError(
            "a Dataset must return (input, target) for each sample, and this one returns %s"
            % type(samples[0]).__name__,
            "put several inputs into a tuple or a dictionary",
        )
    return batch[0], batch[1]
