"""Blocks come with the samples the one order gives them, however many updates are gathered at once."""

from __future__ import annotations

import threading
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

from trainjob.data.shards import Split
from trainjob.train.samples import batches
from trainjob.train.samples.arithmetic import Arithmetic
from trainjob.train.samples.augmentation import ShiftAndFlip
from trainjob.train.samples.batches import blocks, draws_of
from trainjob.train.samples.sources import DatasetSource, ShardSource, TensorSource


def counts(samples: int = 103, device_iterations: int = 1, instances: int = 2, **more: Any) -> Arithmetic:
    return Arithmetic(
        samples=samples,
        micro_batch=3,
        micro_batches=2 * instances,
        instances=instances,
        device_iterations=device_iterations,
        remainder="drop",
        seed=5,
    )._replace(**more)


def shards(samples: int = 103) -> ShardSource:
    random = np.random.default_rng(1)
    images = random.integers(0, 256, (samples, 3, 8, 8), np.uint8)
    return ShardSource(Split(images, np.arange(samples, dtype=np.uint16)), ShiftAndFlip(2, flip=True))


def one_update(source: ShardSource, asked: Arithmetic, instance: int, update: int) -> Any:
    indices = asked.sample_indices(update, 1, instance).reshape(-1)
    return source.gather(indices, draws_of(asked, instance, update, 1))


@pytest.mark.parametrize("chunk_bytes", [1, 5000, 1 << 30])
@pytest.mark.parametrize("device_iterations", [1, 4])
def test_a_block_holds_what_its_updates_take(
    monkeypatch: pytest.MonkeyPatch, chunk_bytes: int, device_iterations: int
) -> None:
    monkeypatch.setattr(batches, "CHUNK_BYTES", chunk_bytes)
    source, asked = shards(), counts(device_iterations=device_iterations)
    end = 3 * asked.updates_per_epoch
    for instance in range(2):
        update = device_iterations
        for block in blocks(source, asked, instance, update, end):
            assert (block.first_update, block.updates) == (update, device_iterations)
            parts = [one_update(source, asked, instance, number) for number in range(update, update + block.updates)]
            assert torch.equal(block.inputs, torch.cat([inputs for inputs, _ in parts]))
            assert torch.equal(block.targets, torch.cat([targets for _, targets in parts]))
            update += block.updates
        assert update == end


def test_the_instances_together_hold_what_one_alone_holds() -> None:
    source = shards()
    alone = [block.inputs for block in blocks(source, counts(instances=1, micro_batches=4), 0, 0, 6)]
    halves = [[block.inputs for block in blocks(source, counts(), instance, 0, 6)] for instance in range(2)]
    for whole, first, second in zip(alone, *halves, strict=True):
        assert torch.equal(whole, torch.cat([first, second]))


def test_no_thread_outlives_the_blocks() -> None:
    def at_work() -> int:
        return sum(thread.name.startswith("trainjob-ahead") for thread in threading.enumerate())

    upcoming = blocks(shards(), counts(), 0, 0, 10**6)
    next(upcoming)
    assert at_work() == 1
    upcoming.close()
    assert at_work() == 0


def test_a_users_dataset_is_asked_in_the_thread_that_trains() -> None:
    # It may draw on torch's own generator, as dropout does.
    class Noted(torch.utils.data.Dataset[Any]):
        threads: ClassVar[set[threading.Thread]] = set()

        def __len__(self) -> int:
            return 103

        def __getitem__(self, index: Any) -> tuple[Any, ...]:
            self.threads.add(threading.current_thread())
            return torch.rand(2), index

    assert len(list(blocks(DatasetSource(Noted()), counts(), 0, 0, 5))) == 5
    assert Noted.threads == {threading.current_thread()}


def test_tensors_come_in_the_same_order() -> None:
    source = TensorSource(torch.arange(103.0)[:, None], torch.arange(103))
    for block in blocks(source, counts(), 1, 0, 20):
        assert block.targets.tolist() == counts().sample_indices(block.first_update, 1, 1).reshape(-1).tolist()
        assert torch.equal(block.inputs[:, 0], block.targets.float())
