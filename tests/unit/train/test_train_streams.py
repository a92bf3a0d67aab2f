"""Iterable Datasets: the same samples in the same micro batches for any number of instances, and on going on."""

from itertools import chain

import numpy as np
import pytest
import torch
from runs_at_work import final_bytes, make_run, tensors, train, train_here, updates
from torch.utils.data import IterableDataset

from trainjob.contract.errors import UserError
from trainjob.train.arithmetic import Arithmetic
from trainjob.train.batches import blocks, trial_inputs
from trainjob.train.choosing import as_source
from trainjob.train.sources import DatasetSource
from trainjob.train.streams import StreamSource, length_of


class Shuffled(IterableDataset):
    """Draws its order through a buffer of three, and noise for each sample, from torch's generator."""

    def __init__(self, samples: int = 22) -> None:
        self.samples = samples
        self.epoch = None

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self):
        buffer = []
        for number in range(self.samples):
            buffer.append(number + 100 * self.epoch)
            if len(buffer) == 3:
                yield self.noisy(buffer.pop(int(torch.randint(3, ()))))
        for number in buffer:
            yield self.noisy(number)

    def noisy(self, number):
        return torch.tensor([float(number), float(torch.rand(()))]), number


class Sized(Shuffled):
    def __len__(self):
        return self.samples


def counted(instances=1, samples=22, micro_batches=4, **changes):
    values = {"micro_batch": 2, "device_iterations": 1, "remainder": "drop", "seed": 3, **changes}
    return Arithmetic(samples=samples, micro_batches=micro_batches, instances=instances, **values)


def rows(instances, start=0, end=6, workers=0, **changes):
    """Return the numbers and the noise of every sample of each update, instances one after the other."""
    parts = []
    for instance in range(instances):
        source = as_source(Shuffled(), 22)
        mine = blocks(source, counted(instances, **changes), instance, start, end, workers)
        parts.append([block.inputs.numpy() for block in mine])
    return [np.concatenate(update).tolist() for update in zip(*parts, strict=True)]


def test_every_instance_keeps_its_share_of_each_global_batch():
    assert rows(2) == rows(1)
    assert rows(4) == rows(1)


def test_an_epoch_has_each_sample_once_less_the_remainder_and_the_next_is_told_its_number():
    numbers = [int(row[0]) for update in rows(1) for row in update]
    first, second, third = numbers[:16], numbers[16:32], numbers[32:]
    assert len(set(first)) == 16
    assert all(number < 100 for number in first)
    assert all(100 <= number < 200 for number in second)
    assert all(200 <= number < 300 for number in third)


@pytest.mark.parametrize("start", [1, 2, 3])
def test_going_on_gives_what_would_have_come(start):
    assert rows(2, start=start) == rows(1)[start:]


def test_a_reading_process_gives_the_same():
    assert rows(1, workers=2) == rows(1)


def test_several_updates_at_once_give_the_same():
    assert list(chain(*rows(1, device_iterations=2))) == list(chain(*rows(1)))


def test_a_stream_that_ends_early_says_where():
    source = as_source(Shuffled(10), 22)
    with pytest.raises(
        UserError, match="ended after 10 samples of an epoch that was planned with 22: give --samples 10"
    ):
        list(blocks(source, counted(), 0, 0, 2))


def test_padding_is_refused():
    with pytest.raises(UserError, match="can't be padded"):
        list(blocks(as_source(Shuffled(), 22), counted(remainder="pad"), 0, 0, 2))


def test_the_length_is_asked_for_where_nothing_says_it():
    assert len(as_source(Sized())) == 22
    with pytest.raises(UserError, match=r"iterable Dataset \(Shuffled\) without __len__.*give --samples"):
        as_source(Shuffled())
    assert length_of([1, 2]) is None
    assert length_of(iter([1, 2])) == 2


def test_what_can_be_asked_by_index_is_no_stream():
    assert isinstance(as_source([(torch.zeros(1), 0)]), DatasetSource)
    assert isinstance(as_source(Sized()), StreamSource)
    with pytest.raises(UserError, match="neither be asked by index"):
        as_source(7)


def test_the_trial_is_the_beginning_of_the_stream_and_evaluation_goes_through_it_in_order():
    source = as_source(Sized())
    inputs, targets = trial_inputs(source, counted())
    assert inputs.shape == (2, 2)
    whole = source.gather(np.arange(22), None)[1].tolist()
    assert sorted(whole) == list(range(22))
    assert targets.tolist() == whole[:2]
    halves = [source.gather(np.arange(*half), None)[1].tolist() for half in ((0, 11), (11, 22))]
    assert halves[0] + halves[1] == whole


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


def test_a_resumed_run_ends_with_the_very_weights(tmp_path):
    whole = make_run(tmp_path / "whole", {"mine.py": MINE}, updates=20, **JOB)
    assert train_here(whole) == 0
    cut = make_run(tmp_path / "cut", {"mine.py": MINE}, updates=20, **JOB)
    assert train_here(cut, TRAINJOB_MAX_UPDATES=11) == 0
    assert updates(cut)[0] == 11
    assert train_here(cut, attempt=2) == 0
    assert final_bytes(cut) == final_bytes(whole)


def test_two_instances_end_with_the_weights_of_one(tmp_path):
    one = make_run(tmp_path / "one", {"mine.py": MINE}, updates=6, **{**JOB, "accumulation": 2})
    assert train_here(one) == 0
    two = make_run(tmp_path / "two", {"mine.py": MINE}, updates=6, instances=2, **JOB)
    assert train(two, 2) == [0, 0]
    for name, weight in tensors(one).items():
        assert torch.allclose(weight, tensors(two)[name], rtol=0, atol=1e-12), name
