"""Blocks of samples in order: what this instance takes of each global batch, update after update."""

from __future__ import annotations

import contextlib
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Generator, Iterator, List, NamedTuple, Tuple, TypeVar

import numpy as np
from torch.utils.data import DataLoader

from trainjob.train.samples import nested
from trainjob.train.samples.arithmetic import Arithmetic
from trainjob.train.samples.crops import CropSource
from trainjob.train.samples.draws import Draws
from trainjob.train.samples.nested import Nested
from trainjob.train.samples.sources import DatasetSource, SeededDataset, Source, collate
from trainjob.train.samples.streams import StreamSource, shares
from trainjob.train.stopping import without_usr1

# Samples are gathered for as many updates at once as fit; in smaller chunks, the cost per numpy call shows.
CHUNK_BYTES = 2 * 1024 * 1024
_CHUNK_UPDATES = 256
# The order is computed for this many samples at once, because it costs numpy calls rather than time per sample.
_ORDERED_AT_ONCE = 32768
# A background thread keeps this many chunks ready; only one if chunks are as large as the second figure.
_AHEAD, _LARGE_BYTES = 2, 16 * 1024 * 1024

Value = TypeVar("Value")


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
        loaded: Iterator[Tuple[Nested, Nested]] = shares(source, counts, instance, start, end, workers, pin)
    elif workers and isinstance(source, DatasetSource):
        step = counts.device_iterations
        loader: DataLoader[Any] = DataLoader(
            SeededDataset(source.dataset),  # type: ignore[arg-type]
            batch_sampler=(
                seeded_indices(counts, instance, first, min(step, end - first)) for first in range(start, end, step)
            ),
            num_workers=workers,
            collate_fn=collate,
            pin_memory=pin,
        )
        loaded = without_usr1(loader)
    else:
        if workers and isinstance(source, CropSource):
            source.use_threads(workers)
        yield from _gathered(source, counts, instance, start, end, pin)
        return
    for number, (inputs, targets) in enumerate(loaded):
        first = start + number * counts.device_iterations
        yield Block(first, min(counts.device_iterations, end - first), inputs, targets)


def _gathered(source: Source, counts: Arithmetic, instance: int, start: int, end: int, pin: bool) -> Iterator[Block]:
    """Yield the blocks, cut from larger ones that are gathered at once, a few of them ahead."""
    step, size = counts.device_iterations, counts.share * counts.device_iterations
    update_bytes = (source.sample_bytes or CHUNK_BYTES) * counts.share
    fitting = max(1, min(CHUNK_BYTES // update_bytes, _CHUNK_UPDATES))
    updates = max(1, fitting // step) * step
    chunks = _chunks(source, counts, instance, start, end, updates, pin)
    if source.sample_bytes is not None:  # otherwise a user's Dataset, which may use the random generators of training
        chunks = ahead(chunks, _AHEAD if updates * update_bytes < _LARGE_BYTES else 1)
    with contextlib.closing(chunks):
        for chunk in chunks:
            for number in range(0, chunk.updates, step):
                begin = number * counts.share
                inputs = nested.rows(chunk.inputs, begin, begin + size)
                targets = nested.rows(chunk.targets, begin, begin + size)
                yield Block(chunk.first_update + number, min(step, chunk.updates - number), inputs, targets)


def _chunks(
    source: Source, counts: Arithmetic, instance: int, start: int, end: int, updates: int, pin: bool
) -> Generator[Block, None, None]:
    """Yield the samples of `updates` updates at a time, and of fewer at the end of an epoch."""
    at_once = max(1, _ORDERED_AT_ONCE // (updates * counts.share)) * updates
    first = start
    while first < end:
        ordered = min(at_once, end - first, counts.updates_per_epoch - counts.place(first)[1])
        indices = counts.sample_indices(first, ordered, instance)
        for number in range(0, ordered, updates):
            chosen = indices[number : number + updates]
            draws = draws_of(counts, instance, first + number, len(chosen))
            samples = source.gather(chosen.reshape(-1), draws)
            if pin:
                samples = nested.convert(lambda tensor: tensor.pin_memory(), samples)
            yield Block(first + number, len(chosen), *samples)
        first += ordered


def ahead(values: Iterator[Value], most: int) -> Generator[Value, None, None]:
    """Yield `values`, of which a background thread keeps `most` ready; closing the iterator ends the thread.

    An error of `values` is raised in place of the value. Because of the thread, `values` must not use random number
    generators that others use.
    """
    # A pool, because Python waits for its thread at the end: one still running C++ code would abort the process.
    thread = ThreadPoolExecutor(1, "trainjob-ahead")
    ready = deque(thread.submit(next, values) for _ in range(most))
    try:
        while True:
            value = ready.popleft().result()
            ready.append(thread.submit(next, values))
            yield value
    except StopIteration:
        return
    finally:
        for future in ready:
            future.cancel()
        thread.shutdown()


def draws_of(counts: Arithmetic, instance: int, first: int, updates: int) -> Draws:
    """Return the draws of this instance's samples in `updates` updates of one epoch."""
    numbers = np.repeat(np.arange(first, first + updates, dtype=np.int64), counts.share)
    return Draws(counts.seed, numbers, np.tile(counts.slots(instance), updates))


def seeded_indices(counts: Arithmetic, instance: int, first: int, updates: int) -> List[Tuple[int, int]]:
    """Return a (seed, index) for each of this instance's samples in `updates` updates, as a SeededDataset takes it."""
    indices = counts.sample_indices(first, updates, instance).reshape(-1)
    return list(zip(draws_of(counts, instance, first, updates).below(2**32).tolist(), indices.tolist()))


def trial_inputs(source: Source, counts: Arithmetic) -> Tuple[Nested, Nested]:
    """Return the first micro batch of the run, which is the same on every rank and in every attempt."""
    slots = np.arange(counts.micro_batch, dtype=np.int64)
    if isinstance(source, StreamSource):
        return source.gather(slots, None)
    indices = counts.sample_indices(0, 1, 0).reshape(-1)[: counts.micro_batch]
    return source.gather(indices, Draws(counts.seed, np.zeros_like(slots), slots))
