"""Blocks of samples in the one order: what this instance takes of each global batch, update after update."""

from __future__ import annotations

from typing import Any, Generator, Iterator, List, NamedTuple, Tuple

import numpy as np
from torch.utils.data import DataLoader

from trainjob.train import draws, nested
from trainjob.train.ahead import Ahead
from trainjob.train.arithmetic import Arithmetic
from trainjob.train.draws import Draws
from trainjob.train.sources import DatasetSource, SeededDataset, Source, collate
from trainjob.train.stopping import begin_unasked
from trainjob.train.streams import StreamSource, shares

# Samples are gathered for as many updates at once as fit: below this numpy's cost a call is felt.
_CHUNK_BYTES = 2 * 1024 * 1024
_CHUNK_UPDATES = 256
# The order is worked out for so many samples at once: its many small steps cost numpy calls, not time a sample.
_ORDERED_AT_ONCE = 32768
# So many such chunks are kept ready by a background thread; of chunks as large as the second figure, one.
_AHEAD, _LARGE_BYTES = 2, 16 * 1024 * 1024


class Block(NamedTuple):
    """One instance's samples of `updates` updates, on the host; micro batches lie one after the other."""

    first_update: int
    updates: int
    inputs: Any  # (updates × share, …)
    targets: Any  # (updates × share, …)


def blocks(
    source: Source, counts: Arithmetic, instance: int, start: int, end: int, workers: int = 0, pin: bool = False
) -> Generator[Block, None, None]:
    """Yield this instance's blocks for updates `start` to `end`, in order; only a user's Dataset has `workers`.

    `pin`: in memory that a GPU copies from while it computes. Closing the iterator ends the thread behind it.
    """
    if isinstance(source, StreamSource):
        return _numbered(shares(source, counts, instance, start, end, workers, pin), counts, start, end)
    if workers and isinstance(source, DatasetSource):
        return _numbered(_from_workers(source, counts, instance, start, end, workers, pin), counts, start, end)
    return _gathered(source, counts, instance, start, end, pin)


def _gathered(
    source: Source, counts: Arithmetic, instance: int, start: int, end: int, pin: bool
) -> Generator[Block, None, None]:
    chunks = _Chunks(source, counts, instance, start, end, pin)
    if source.sample_bytes is None:  # a user's Dataset may draw on generators that the training uses: not beside it
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
    """One instance's samples of some updates of one epoch, gathered at once: whole blocks."""

    first_update: int
    updates: int
    inputs: Any
    targets: Any

    def cut(self, counts: Arithmetic) -> Iterator[Block]:
        """Yield the blocks in it, sharing its memory."""
        size = counts.share * counts.device_iterations
        for number in range(0, self.updates, counts.device_iterations):
            begin = number * counts.share
            inputs = nested.rows(self.inputs, begin, begin + size)
            targets = nested.rows(self.targets, begin, begin + size)
            updates = min(counts.device_iterations, self.updates - number)
            yield Block(self.first_update + number, updates, inputs, targets)


class _Chunks:
    """The chunks of one instance for updates `start` to `end`, each gathered when it is asked for."""

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

    def _ordered(self) -> Iterator[Tuple[int, Any]]:
        """Yield the first update and the samples (updates, share) of stretches of many updates, each of one epoch."""
        stretch = max(1, _ORDERED_AT_ONCE // (self._step * self._counts.share)) * self._step
        first = self._start
        while first < self._end:
            _, within = self._counts.place(first)
            updates = min(stretch, self._end - first, self._counts.updates_per_epoch - within)
            yield first, self._counts.sample_indices(first, updates, self._instance)
            first += updates


def gather(source: Source, counts: Arithmetic, instance: int, first: int, updates: int) -> Tuple[Any, Any]:
    """Return inputs and targets, augmented, of this instance's share of `updates` updates of one epoch."""
    return _gather(source, counts, instance, first, counts.sample_indices(first, updates, instance))


def _gather(source: Source, counts: Arithmetic, instance: int, first: int, indices: Any) -> Tuple[Any, Any]:
    """Return inputs and targets of samples `indices` (updates, share), augmented for the updates from `first` on."""
    return source.gather(indices.reshape(-1), _draws(counts, instance, first, len(indices)))


def _draws(counts: Arithmetic, instance: int, first: int, updates: int) -> Draws:
    numbers = np.repeat(np.arange(first, first + updates, dtype=np.int64), counts.share)
    return Draws(counts.seed, numbers, np.tile(counts.slots(instance), updates))


def _numbered(
    gathered: Generator[Tuple[Any, Any], None, None], counts: Arithmetic, start: int, end: int
) -> Generator[Block, None, None]:
    for number, (inputs, targets) in enumerate(gathered):
        first = start + number * counts.device_iterations
        yield Block(first, min(counts.device_iterations, end - first), inputs, targets)


def _from_workers(
    source: DatasetSource, counts: Arithmetic, instance: int, start: int, end: int, workers: int, pin: bool
) -> Generator[Tuple[Any, Any], None, None]:
    asked = _Asked(counts, instance, start, end)
    loader: DataLoader[Any] = DataLoader(
        SeededDataset(source.dataset),  # type: ignore[arg-type]
        batch_sampler=asked,
        num_workers=workers,
        collate_fn=collate,
        pin_memory=pin,
    )
    yield from begin_unasked(loader)


class _Asked:
    """The (seed, index) pairs of every block: what the DataLoader's workers are told to make."""

    def __init__(self, counts: Arithmetic, instance: int, start: int, end: int) -> None:
        self._counts, self._instance, self._start, self._end = counts, instance, start, end

    def __iter__(self) -> Iterator[List[Tuple[int, int]]]:
        step = self._counts.device_iterations
        for first in range(self._start, self._end, step):
            updates = min(step, self._end - first)
            indices = self._counts.sample_indices(first, updates, self._instance).reshape(-1)
            seeds = _draws(self._counts, self._instance, first, updates).integers(0, 2**32)
            yield list(zip(seeds.tolist(), indices.tolist()))


def trial_inputs(source: Source, counts: Arithmetic) -> Tuple[Any, Any]:
    """Return the very first micro batch of the run: the same on every rank and in every attempt."""
    slots = np.arange(counts.micro_batch, dtype=np.int64)
    if isinstance(source, StreamSource):
        return source.gather(slots, None)
    indices = counts.sample_indices(0, 1, 0).reshape(-1)[: counts.micro_batch]
    return source.gather(indices, draws.Draws(counts.seed, np.zeros_like(slots), slots))
