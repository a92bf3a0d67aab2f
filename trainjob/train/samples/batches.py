"""Blocks of samples in order: what this instance takes of each global batch, update after update."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generator, Iterator, List, NamedTuple, Tuple

import numpy as np
from torch.utils.data import DataLoader

from trainjob.train.samples import draws, nested
from trainjob.train.samples.ahead import Ahead
from trainjob.train.samples.arithmetic import Arithmetic
from trainjob.train.samples.crops import CropSource
from trainjob.train.samples.draws import Draws
from trainjob.train.samples.nested import Nested
from trainjob.train.samples.sources import DatasetSource, SeededDataset, Source, collate
from trainjob.train.samples.streams import StreamSource, shares
from trainjob.train.stopping import without_usr1

if TYPE_CHECKING:
    from trainjob.train.samples.draws import Indices

# Samples are gathered for as many updates at once as fit; in smaller chunks, the cost per numpy call shows.
_CHUNK_BYTES = 2 * 1024 * 1024
_CHUNK_UPDATES = 256
# The order is computed for this many samples at once, because it costs numpy calls rather than time per sample.
_ORDERED_AT_ONCE = 32768
# A background thread keeps this many chunks ready; only one if chunks are as large as the second figure.
_AHEAD, _LARGE_BYTES = 2, 16 * 1024 * 1024


class Block(NamedTuple):
    """One instance's samples of `updates` updates, on the host, one micro batch after the other."""

    first_update: int
    updates: int
    inputs: Nested  # (updates × share, …)
    targets: Nested  # (updates × share, …)


def blocks(
    source: Source, counts: Arithmetic, instance: int, start: int, end: int, workers: int = 0, pin: bool = False
) -> Generator[Block, None, None]:
    """Yield this instance's blocks for updates `start` to `end`, in order.

    A user's Dataset has `workers` processes, and images that are decoded have as many threads; 0: one a core.

    With `pin`, they are in memory from which a GPU can copy while it computes. Closing the iterator ends its thread.
    """
    if isinstance(source, StreamSource):
        return _numbered(shares(source, counts, instance, start, end, workers, pin), counts, start, end)
    if workers and isinstance(source, DatasetSource):
        return _numbered(_from_workers(source, counts, instance, start, end, workers, pin), counts, start, end)
    if workers and isinstance(source, CropSource):
        source.use_threads(workers)
    return _gathered(source, counts, instance, start, end, pin)


def _gathered(
    source: Source, counts: Arithmetic, instance: int, start: int, end: int, pin: bool
) -> Generator[Block, None, None]:
    chunks = _Chunks(source, counts, instance, start, end, pin)
    if source.sample_bytes is None:  # no thread: a user's Dataset may use the same random generators as training
        for chunk in chunks:
            yield from chunk.cut(counts)
        return
    ahead: Ahead[Chunk] = Ahead(iter(chunks), _AHEAD if chunks.bytes_of_one < _LARGE_BYTES else 1)
    try:
        for chunk in ahead:
            yield from chunk.cut(counts)
    finally:
        ahead.close()


class Chunk(NamedTuple):
    """One instance's samples of some updates of one epoch, gathered at once. Consists of whole blocks."""

    first_update: int
    updates: int
    inputs: Nested
    targets: Nested

    def cut(self, counts: Arithmetic) -> Iterator[Block]:
        """Yield its blocks, which share its memory."""
        size = counts.share * counts.device_iterations
        for number in range(0, self.updates, counts.device_iterations):
            begin = number * counts.share
            inputs = nested.rows(self.inputs, begin, begin + size)
            targets = nested.rows(self.targets, begin, begin + size)
            updates = min(counts.device_iterations, self.updates - number)
            yield Block(self.first_update + number, updates, inputs, targets)


class _Chunks:
    """The chunks of one instance for updates `start` to `end`, each gathered on demand."""

    def __init__(self, source: Source, counts: Arithmetic, instance: int, start: int, end: int, pin: bool) -> None:
        self._source, self._counts, self._instance = source, counts, instance
        self._start, self._end, self._pin = start, end, pin
        of_an_update = (source.sample_bytes or _CHUNK_BYTES) * counts.share
        fitting = max(1, min(_CHUNK_BYTES // of_an_update, _CHUNK_UPDATES))
        self._step = max(1, fitting // counts.device_iterations) * counts.device_iterations
        self.bytes_of_one = self._step * of_an_update

    def __iter__(self) -> Iterator[Chunk]:
        for first, indices in self._ordered():
            for number in range(0, len(indices), self._step):
                of_chunk = indices[number : number + self._step]
                samples = _gather(self._source, self._counts, self._instance, first + number, of_chunk)
                if self._pin:
                    samples = nested.convert(lambda tensor: tensor.pin_memory(), samples)
                yield Chunk(first + number, len(of_chunk), *samples)

    def _ordered(self) -> Iterator[Tuple[int, Indices]]:
        """Yield stretches of updates within an epoch: the first update, and the samples (updates, share)."""
        stretch = max(1, _ORDERED_AT_ONCE // (self._step * self._counts.share)) * self._step
        first = self._start
        while first < self._end:
            _, within = self._counts.place(first)
            updates = min(stretch, self._end - first, self._counts.updates_per_epoch - within)
            yield first, self._counts.sample_indices(first, updates, self._instance)
            first += updates


def gather(source: Source, counts: Arithmetic, instance: int, first: int, updates: int) -> Tuple[Nested, Nested]:
    """Return inputs and targets, augmented, of this instance's share of `updates` updates of one epoch."""
    return _gather(source, counts, instance, first, counts.sample_indices(first, updates, instance))


def _gather(source: Source, counts: Arithmetic, instance: int, first: int, indices: Indices) -> Tuple[Nested, Nested]:
    """Return inputs and targets of samples `indices` (updates, share), augmented for the updates from `first` on."""
    return source.gather(indices.reshape(-1), draws_of(counts, instance, first, len(indices)))


def draws_of(counts: Arithmetic, instance: int, first: int, updates: int) -> Draws:
    """Return the draws of this instance's samples in `updates` updates of one epoch."""
    numbers = np.repeat(np.arange(first, first + updates, dtype=np.int64), counts.share)
    return Draws(counts.seed, numbers, np.tile(counts.slots(instance), updates))


def _numbered(
    gathered: Generator[Tuple[Nested, Nested], None, None], counts: Arithmetic, start: int, end: int
) -> Generator[Block, None, None]:
    for number, (inputs, targets) in enumerate(gathered):
        first = start + number * counts.device_iterations
        yield Block(first, min(counts.device_iterations, end - first), inputs, targets)


def _from_workers(
    source: DatasetSource, counts: Arithmetic, instance: int, start: int, end: int, workers: int, pin: bool
) -> Generator[Tuple[Nested, Nested], None, None]:
    pairs = _SeededIndices(counts, instance, start, end)
    loader: DataLoader[Any] = DataLoader(
        SeededDataset(source.dataset),  # type: ignore[arg-type]
        batch_sampler=pairs,
        num_workers=workers,
        collate_fn=collate,
        pin_memory=pin,
    )
    yield from without_usr1(loader)


class _SeededIndices:
    """The (seed, index) pairs of every block, from which the DataLoader's workers make samples."""

    def __init__(self, counts: Arithmetic, instance: int, start: int, end: int) -> None:
        self._counts, self._instance, self._start, self._end = counts, instance, start, end

    def __iter__(self) -> Iterator[List[Tuple[int, int]]]:
        step = self._counts.device_iterations
        for first in range(self._start, self._end, step):
            updates = min(step, self._end - first)
            indices = self._counts.sample_indices(first, updates, self._instance).reshape(-1)
            seeds = draws_of(self._counts, self._instance, first, updates).integers(0, 2**32)
            yield list(zip(seeds.tolist(), indices.tolist()))


def trial_inputs(source: Source, counts: Arithmetic) -> Tuple[Nested, Nested]:
    """Return the first micro batch of the run, which is the same on every rank and in every attempt."""
    slots = np.arange(counts.micro_batch, dtype=np.int64)
    if isinstance(source, StreamSource):
        return source.gather(slots, None)
    indices = counts.sample_indices(0, 1, 0).reshape(-1)[: counts.micro_batch]
    return source.gather(indices, draws.Draws(counts.seed, np.zeros_like(slots), slots))
