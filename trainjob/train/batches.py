"""Blocks of samples in the one order: what this instance takes of each global batch, update after update."""

from __future__ import annotations

from typing import Any, Iterator, List, NamedTuple, Tuple

import numpy as np
from torch.utils.data import DataLoader

from trainjob.train import draws, nested
from trainjob.train.arithmetic import Arithmetic
from trainjob.train.draws import Draws
from trainjob.train.sources import DatasetSource, SeededDataset, Source, collate

# Samples are gathered for as many updates at once as fit: below this numpy's cost a call is felt, above the caches'.
_CHUNK_BYTES = 256 * 1024
_CHUNK_UPDATES = 256


class Block(NamedTuple):
    """One instance's samples of `updates` updates, on the host; micro batches lie one after the other."""

    first_update: int
    updates: int
    inputs: Any  # (updates × share, …)
    targets: Any  # (updates × share, …)


def blocks(source: Source, counts: Arithmetic, instance: int, start: int, end: int, workers: int = 0) -> Iterator[Block]:
    """Yield this instance's blocks for updates `start` to `end`, in order; only a user's Dataset has `workers`."""
    if workers and isinstance(source, DatasetSource):
        return _from_workers(source, counts, instance, start, end, workers)
    return _gathered(source, counts, instance, start, end)


def _gathered(source: Source, counts: Arithmetic, instance: int, start: int, end: int) -> Iterator[Block]:
    for first, updates in _chunks(source, counts, start, end):
        inputs, targets = gather(source, counts, instance, first, updates)
        yield from _cut(inputs, targets, counts, first, updates)


def gather(source: Source, counts: Arithmetic, instance: int, first: int, updates: int) -> Tuple[Any, Any]:
    """Return inputs and targets, augmented, of this instance's share of `updates` updates of one epoch."""
    indices = counts.sample_indices(first, updates, instance)  # (updates, share)
    return source.gather(indices.reshape(-1), _draws(counts, instance, first, updates))


def _draws(counts: Arithmetic, instance: int, first: int, updates: int) -> Draws:
    numbers = np.repeat(np.arange(first, first + updates, dtype=np.int64), counts.share)
    return Draws(counts.seed, numbers, np.tile(counts.slots(instance), updates))


def _chunks(source: Source, counts: Arithmetic, start: int, end: int) -> Iterator[Tuple[int, int]]:
    fitting = _CHUNK_BYTES // (source.sample_bytes * counts.share) if source.sample_bytes else 1
    step = max(1, min(fitting, _CHUNK_UPDATES) // counts.device_iterations) * counts.device_iterations
    first = start
    while first < end:
        _, within = counts.place(first)
        updates = min(step, end - first, counts.updates_per_epoch - within)
        yield first, updates
        first += updates


def _cut(inputs: Any, targets: Any, counts: Arithmetic, first: int, updates: int) -> Iterator[Block]:
    size = counts.share * counts.device_iterations
    for number in range(0, updates, counts.device_iterations):
        begin = number * counts.share
        inputs_of_block = nested.rows(inputs, begin, begin + size)
        targets_of_block = nested.rows(targets, begin, begin + size)
        taken = min(counts.device_iterations, updates - number)
        yield Block(first + number, taken, inputs_of_block, targets_of_block)


def _from_workers(
    source: DatasetSource, counts: Arithmetic, instance: int, start: int, end: int, workers: int
) -> Iterator[Block]:
    asked = _Asked(counts, instance, start, end)
    loader = DataLoader(
        SeededDataset(source.dataset),  # type: ignore[arg-type]
        batch_sampler=asked,  # type: ignore[arg-type]
        num_workers=workers,
        collate_fn=collate,
    )
    for number, (inputs, targets) in enumerate(loader):
        first = start + number * counts.device_iterations
        yield Block(first, min(counts.device_iterations, end - first), inputs, targets)


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
    indices = counts.sample_indices(0, 1, 0).reshape(-1)[: counts.micro_batch]
    slots = np.arange(counts.micro_batch, dtype=np.int64)
    return source.gather(indices, draws.Draws(counts.seed, np.zeros_like(slots), slots))
