"""Iterable Datasets: the same samples in the same micro batches for any number of instances, and on going on."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.support.runs_at_work import final_bytes, make_run, train_here, updates
from tests.support.streams import JOB, MINE, Shuffled, counted, rows
from trainjob.contract.errors import UserError
from trainjob.train.samples.batches import blocks, trial_inputs
from trainjob.train.samples.sources import DatasetSource
from trainjob.train.samples.streams import StreamSource, as_source, length_of


class Sized(Shuffled):
    def __len__(self) -> int:
        return self.samples


def test_every_instance_keeps_its_share_of_each_global_batch() -> None:
    assert rows(2) == rows(1)
    assert rows(4) == rows(1)


def test_an_epoch_has_each_sample_once_less_the_remainder_and_the_next_gets_its_number() -> None:
    numbers = [int(row[0]) for update in rows(1) for row in update]
    first, second, third = numbers[:16], numbers[16:32], numbers[32:]
    assert len(set(first)) == 16
    assert all(number < 100 for number in first)
    assert all(100 <= number < 200 for number in second)
    assert all(200 <= number < 300 for number in third)


@pytest.mark.parametrize("start", [1, 2, 3])
def test_going_on_gives_what_would_have_come(start: int) -> None:
    assert rows(2, start=start) == rows(1)[start:]


def test_several_updates_at_once_give_the_same() -> None:
    assert list(chain(*rows(1, device_iterations=2))) == list(chain(*rows(1)))


def test_a_stream_that_ends_early_says_where() -> None:
    source = as_source(Shuffled(10), 22)
    with pytest.raises(UserError, match="ended after 10 samples, and an epoch was planned with 22: give --samples 10"):
        list(blocks(source, counted(), 0, 0, 2))


def test_padding_is_refused() -> None:
    with pytest.raises(UserError, match="can't be padded"):
        list(blocks(as_source(Shuffled(), 22), counted(remainder="pad"), 0, 0, 2))


def test_the_length_is_asked_for_where_nothing_says_it() -> None:
    assert len(as_source(Sized())) == 22
    with pytest.raises(UserError, match=r"iterable Dataset \(Shuffled\) without __len__.*give --samples"):
        as_source(Shuffled())
    assert length_of([1, 2]) is None
    assert length_of(iter([1, 2])) == 2


def test_what_can_be_asked_by_index_is_no_stream() -> None:
    assert isinstance(as_source([(torch.zeros(1), 0)]), DatasetSource)
    assert isinstance(as_source(Sized()), StreamSource)
    with pytest.raises(UserError, match="neither be indexed"):
        as_source(7)


def test_the_trial_is_the_beginning_of_the_stream_and_evaluation_goes_through_it_in_order() -> None:
    source = as_source(Sized())
    inputs, targets = trial_inputs(source, counted())
    assert inputs.shape == (2, 2)
    whole = source.gather(np.arange(22), None)[1].tolist()
    assert sorted(whole) == list(range(22))
    assert targets.tolist() == whole[:2]
    halves = [source.gather(np.arange(*half), None)[1].tolist() for half in ((0, 11), (11, 22))]
    assert halves[0] + halves[1] == whole


def test_a_resumed_run_ends_with_the_very_weights(tmp_path: Path) -> None:
    whole = make_run(tmp_path / "whole", {"mine.py": MINE}, updates=20, **JOB)
    assert train_here(whole) == 0
    cut = make_run(tmp_path / "cut", {"mine.py": MINE}, updates=20, **JOB)
    assert train_here(cut, TRAINJOB_MAX_UPDATES=11) == 0
    assert updates(cut)[0] == 11
    assert train_here(cut, attempt=2) == 0
    assert final_bytes(cut) == final_bytes(whole)
