"""poptorch.DataLoader against ipu.md 4.4."""

import pytest
import torch
from torch.utils.data import IterableDataset, TensorDataset


def numbers(count):
    return TensorDataset(torch.arange(count))


def options_of(poptorch, iterations=1, replicas=1, accumulation=1, process=0, processes=1, seed=None):
    options = poptorch.Options().deviceIterations(iterations).replicationFactor(replicas)
    options.Training.gradientAccumulation(accumulation)
    options.Distributed.configureProcessId(process, processes)
    return options if seed is None else options.randomSeed(seed)


def batches(loader):
    return [batch.tolist() for (batch,) in loader]


def test_combined_batch_and_length_of_the_lessons(poptorch):
    """4.4 check: N 50,000, batch 64, GA 8, DI 4, 2 local replicas, 4 processes: combined 4096, length 3."""
    data = TensorDataset(torch.zeros(50000, dtype=torch.uint8))
    for process in range(4):
        loader = poptorch.DataLoader(options_of(poptorch, 4, 2, 8, process, 4), data, batch_size=64)
        assert (loader.combinedBatchSize, len(loader)) == (4096, 3)
    alone = poptorch.DataLoader(options_of(poptorch, 4, 1, 8), data, batch_size=64)
    assert (alone.combinedBatchSize, len(alone)) == (2048, 24)
    replicated = poptorch.DataLoader(options_of(poptorch, 4, 8, 8), data, batch_size=64)
    assert (replicated.combinedBatchSize, len(replicated)) == (16384, 3)


def test_input_groups_share_a_batch(poptorch):
    """4.4: local replication ÷ input group."""
    options = options_of(poptorch, 1, 4).inputReplicaGrouping(2, poptorch.CommGroupType.Consecutive)
    assert poptorch.DataLoader(options, numbers(8), batch_size=2).combinedBatchSize == 4


def test_drop_last_is_on_unless_said(poptorch):
    """4.4: drop_last defaults to True."""
    assert batches(poptorch.DataLoader(options_of(poptorch), numbers(7), batch_size=3)) == [[0, 1, 2], [3, 4, 5]]
    kept = poptorch.DataLoader(options_of(poptorch), numbers(7), batch_size=3, drop_last=False)
    assert batches(kept)[-1] == [6]


def test_processes_take_contiguous_parts_and_the_remainder_by_turns(poptorch):
    """4.4: combined × (N // (combined × P)) samples each, in contiguous blocks; the range swaps by epoch."""
    parts = [
        poptorch.DataLoader(options_of(poptorch, process=index, processes=2), numbers(11), batch_size=2)
        for index in range(2)
    ]
    assert [len(loader) for loader in parts] == [2, 2]
    assert [batches(loader) for loader in parts] == [[[0, 1], [2, 3]], [[4, 5], [6, 7]]]
    assert [batches(loader) for loader in parts] == [[[3, 4], [5, 6]], [[7, 8], [9, 10]]]
    assert batches(parts[0]) == [[0, 1], [2, 3]]


def test_without_drop_last_processes_split_evenly(poptorch):
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


def test_shuffling_in_several_processes_needs_a_seed(poptorch):
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


def test_partitioning_can_be_off(poptorch):
    """4.4: auto_distributed_partitioning."""
    options = options_of(poptorch, process=1, processes=2)
    loader = poptorch.DataLoader(options, numbers(4), 2, auto_distributed_partitioning=False)
    assert batches(loader) == [[0, 1], [2, 3]]


class Stream(IterableDataset):
    def __iter__(self):
        return iter(torch.arange(5).split(1))


def test_iterable_data_is_not_shared_out(poptorch):
    """4.4: no automatic split with several processes."""
    loader = poptorch.DataLoader(options_of(poptorch), Stream(), batch_size=2)
    assert [batch.flatten().tolist() for batch in loader] == [[0, 1], [2, 3]]
    with pytest.raises(AssertionError, match="auto_distributed_partitioning"):
        poptorch.DataLoader(options_of(poptorch, processes=2), Stream())
    poptorch.DataLoader(options_of(poptorch, processes=2), Stream(), auto_distributed_partitioning=False)


def test_a_batch_sampler_of_ones_own(poptorch):
    """4.4: batch_sampler; it gives combined batches."""
    loader = poptorch.DataLoader(options_of(poptorch, 2), numbers(6), batch_sampler=[[5, 4], [1, 0]])
    assert batches(loader) == [[5, 4], [1, 0]]
    assert len(loader) == 2


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("mode", ["Async", "AsyncRebatched"])
def test_asynchronous_modes_give_the_same_batches(poptorch, mode, workers):
    """4.4: for map-style data AsyncRebatched behaves as Async; several epochs, then terminate."""
    loader = poptorch.DataLoader(
        options_of(poptorch), numbers(10), 2, num_workers=workers, mode=poptorch.DataLoaderMode[mode]
    )
    for _ in range(3):
        assert batches(loader) == [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9]]
    for (batch,) in loader:
        assert batch.tolist() == [0, 1]
        break
    assert batches(loader)[0] == [0, 1]
    loader.terminate()


def test_an_asynchronous_batch_must_be_cloned_to_be_kept(poptorch):
    """4.4: shared memory is used again."""
    loader = poptorch.DataLoader(options_of(poptorch), numbers(60), 2, mode=poptorch.DataLoaderMode.Async)
    kept, cloned = [], []
    for (batch,) in loader:
        kept.append(batch)
        cloned.append(batch.clone())
    loader.terminate()
    assert torch.equal(torch.cat(cloned), torch.arange(60))
    assert any(not torch.equal(one, other) for one, other in zip(kept, cloned, strict=True))


class Unpicklable(torch.utils.data.Dataset):
    def __init__(self):
        self.transform = lambda value: value

    def __len__(self):
        return 4

    def __getitem__(self, index):
        return self.transform(index)


def test_asynchronous_data_must_pickle(poptorch):
    """4.4: data set and transform must pickle (not with the sharing strategy Fork)."""
    with pytest.raises((AttributeError, TypeError), match=r"pickle|local"):
        poptorch.DataLoader(options_of(poptorch), Unpicklable(), mode=poptorch.DataLoaderMode.Async)
    fork = {"sharing_strategy": poptorch.SharingStrategy.Fork}
    loader = poptorch.DataLoader(
        options_of(poptorch), Unpicklable(), 2, mode=poptorch.DataLoaderMode.Async, async_options=fork
    )
    assert [batch.tolist() for batch in loader] == [[0, 1], [2, 3]]
    loader.terminate()


class Broken(torch.utils.data.Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        raise KeyError(f"sample {index} is damaged")


def test_an_asynchronous_loader_hands_errors_on(poptorch):
    """What the data set raises reaches who iterates."""
    loader = poptorch.DataLoader(options_of(poptorch), Broken(), mode=poptorch.DataLoaderMode.Async)
    with pytest.raises(KeyError, match="sample 0 is damaged"):
        next(iter(loader))
    loader.terminate()
