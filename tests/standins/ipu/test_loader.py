"""poptorch.DataLoader against ipu.md 4.4."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.data import IterableDataset, TensorDataset

from tests.support.standin_loaders import batches, numbers, options_of


def test_combined_batch_and_length_of_the_lessons(poptorch: Any) -> None:
    """4.4 check: N 50,000, batch 64, GA 8, DI 4, 2 local replicas, 4 processes: combined 4096, length 3."""
    data = TensorDataset(torch.zeros(50000, dtype=torch.uint8))
    for process in range(4):
        loader = poptorch.DataLoader(options_of(poptorch, 4, 2, 8, process, 4), data, batch_size=64)
        assert (loader.combinedBatchSize, len(loader)) == (4096, 3)
    alone = poptorch.DataLoader(options_of(poptorch, 4, 1, 8), data, batch_size=64)
    assert (alone.combinedBatchSize, len(alone)) == (2048, 24)
    replicated = poptorch.DataLoader(options_of(poptorch, 4, 8, 8), data, batch_size=64)
    assert (replicated.combinedBatchSize, len(replicated)) == (16384, 3)


def test_input_groups_share_a_batch(poptorch: Any) -> None:
    """4.4: local replication ÷ input group."""
    options = options_of(poptorch, 1, 4).inputReplicaGrouping(2, poptorch.CommGroupType.Consecutive)
    assert poptorch.DataLoader(options, numbers(8), batch_size=2).combinedBatchSize == 4


def test_drop_last_is_on_unless_said(poptorch: Any) -> None:
    """4.4: drop_last defaults to True."""
    assert batches(poptorch.DataLoader(options_of(poptorch), numbers(7), batch_size=3)) == [[0, 1, 2], [3, 4, 5]]
    kept = poptorch.DataLoader(options_of(poptorch), numbers(7), batch_size=3, drop_last=False)
    assert batches(kept)[-1] == [6]


def test_processes_take_contiguous_parts_and_the_remainder_by_turns(poptorch: Any) -> None:
    """4.4: combined × (N // (combined × P)) samples each, in contiguous blocks; the range swaps by epoch."""
    parts = [
        poptorch.DataLoader(options_of(poptorch, process=index, processes=2), numbers(11), batch_size=2)
        for index in range(2)
    ]
    assert [len(loader) for loader in parts] == [2, 2]
    assert [batches(loader) for loader in parts] == [[[0, 1], [2, 3]], [[4, 5], [6, 7]]]
    assert [batches(loader) for loader in parts] == [[[3, 4], [5, 6]], [[7, 8], [9, 10]]]
    assert batches(parts[0]) == [[0, 1], [2, 3]]


def test_without_drop_last_processes_split_evenly(poptorch: Any) -> None:
    """4.4: drop_last=False: split evenly."""
    seen = []
    for index in range(3):
        options = options_of(poptorch, process=index, processes=3)
        seen += [
            number
            for batch in batches(poptorch.DataLoader(options, numbers(10), 2, drop_last=False))
            for number in batch
        ]
    assert seen == list(range(10))


def test_shuffling_in_several_processes_needs_a_seed(poptorch: Any) -> None:
    """4.4: assert; then one global permutation on every process."""
    with pytest.raises(AssertionError, match="randomSeed"):
        poptorch.DataLoader(options_of(poptorch, processes=2), numbers(8), shuffle=True)
    parts = [
        poptorch.DataLoader(options_of(poptorch, process=index, processes=2, seed=5), numbers(8), 2, shuffle=True)
        for index in range(2)
    ]
    first = [number for loader in parts for batch in batches(loader) for number in batch]
    second = [number for loader in parts for batch in batches(loader) for number in batch]
    assert sorted(first) == sorted(second) == list(range(8))
    assert first != second


def test_partitioning_can_be_off(poptorch: Any) -> None:
    """4.4: auto_distributed_partitioning."""
    options = options_of(poptorch, process=1, processes=2)
    loader = poptorch.DataLoader(options, numbers(4), 2, auto_distributed_partitioning=False)
    assert batches(loader) == [[0, 1], [2, 3]]


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Any:
        return iter(torch.arange(5).split(1))


def test_iterable_data_is_not_shared_out(poptorch: Any) -> None:
    """4.4: no automatic split with several processes."""
    loader = poptorch.DataLoader(options_of(poptorch), Stream(), batch_size=2)
    assert [batch.flatten().tolist() for batch in loader] == [[0, 1], [2, 3]]
    with pytest.raises(AssertionError, match="auto_distributed_partitioning"):
        poptorch.DataLoader(options_of(poptorch, processes=2), Stream())
    poptorch.DataLoader(options_of(poptorch, processes=2), Stream(), auto_distributed_partitioning=False)


def test_a_batch_sampler_of_ones_own(poptorch: Any) -> None:
    """4.4: batch_sampler; it gives micro batches, of which combined ones are made."""
    loader = poptorch.DataLoader(options_of(poptorch, 2), numbers(6), batch_sampler=[[5, 4], [1, 0], [2, 3]])
    assert batches(loader) == [[5, 4, 1, 0]]
    assert len(loader) == 1
    kept = poptorch.DataLoader(options_of(poptorch, 2), numbers(6), batch_sampler=[[5], [1], [2]], drop_last=False)
    assert batches(kept) == [[5, 1], [2]]


def test_each_batch_of_a_batch_sampler_is_collated_by_itself(poptorch: Any) -> None:
    """A collate_fn that pads pads each micro batch, so that combined batches divide into them."""

    def padded(samples: list[Any]) -> Any:
        values = torch.cat([sample[0].view(1) for sample in samples])
        return torch.nn.functional.pad(values, (0, 3 - len(values)), value=-1)

    sampler = [[0], [1, 2], [3, 4, 5], [0, 5]]
    options = options_of(poptorch, 2)
    loader = poptorch.DataLoader(options, numbers(6), batch_sampler=sampler, collate_fn=padded)
    assert [batch.tolist() for batch in loader] == [[0, -1, -1, 1, 2, -1], [3, 4, 5, 0, 5, -1]]
    assert loader.dataset.tensors[0].tolist() == list(range(6))


def test_a_data_set_that_makes_batches_itself(poptorch: Any) -> None:
    """batch_size=None: automatic batching is off."""
    loader = poptorch.DataLoader(options_of(poptorch, 2), TensorDataset(torch.arange(6).view(3, 2)), batch_size=None)
    assert batches(loader) == [[0, 1], [2, 3], [4, 5]]
    assert loader.combinedBatchSize is None


class Counted(IterableDataset[Any]):
    def __len__(self) -> int:
        return 7

    def __iter__(self) -> Any:
        return iter(torch.arange(7).split(1))


def test_rebatching_drops_only_the_end_of_the_whole(poptorch: Any) -> None:
    """AsyncRebatched: batches are put together behind the workers."""
    loader = poptorch.DataLoader(options_of(poptorch), Counted(), 3, mode=poptorch.DataLoaderMode.AsyncRebatched)
    assert len(loader) == 2
    assert [batch.flatten().tolist() for batch in loader.in_this_process()] == [[0, 1, 2], [3, 4, 5]]
    loader.terminate()
