"""One order of samples: whoever holds them, however often it is interrupted."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from trainjob.contract.batch import Batch, share
from trainjob.contract.errors import UserError
from trainjob.train.samples.arithmetic import Arithmetic, check
from trainjob.train.samples.draws import Draws, Permutation, key, micro_batch_seed, mix, mix_array

SEEDS = st.integers(0, 2**63 - 1)


@st.composite
def runs(draw: Any) -> Any:
    instances, accumulation = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    counts = Arithmetic(
        samples=draw(st.integers(1, 400)),
        micro_batch=draw(st.integers(1, 5)),
        micro_batches=instances * accumulation,
        instances=instances,
        device_iterations=draw(st.integers(1, 3)),
        remainder=draw(st.sampled_from(["drop", "pad"])),
        seed=draw(SEEDS),
    )
    assume(counts.updates_per_epoch >= 1)
    return counts


@given(samples=st.integers(1, 3000), seed=SEEDS, epoch=st.integers(0, 10**6))
def test_an_epoch_takes_every_sample_once(samples: Any, seed: Any, epoch: Any) -> None:
    assert sorted(Permutation(seed, epoch, samples)(np.arange(samples))) == list(range(samples))


@given(samples=st.integers(1, 10**12), seed=SEEDS, positions=st.lists(st.integers(0, 10**12), min_size=1, max_size=20))
def test_a_position_asked_alone_has_the_same_sample_as_asked_among_others(
    samples: Any, seed: Any, positions: Any
) -> None:
    asked = np.array(positions) % samples
    order = Permutation(seed, 3, samples)
    together = order(asked)
    assert [int(order(asked[place : place + 1])[0]) for place in range(len(asked))] == together.tolist()
    assert together.max() < samples


def test_the_order_never_changes_from_one_version_to_the_next() -> None:
    assert Permutation(3, 0, 1437)(np.arange(8)).tolist() == [1108, 1047, 1374, 1235, 1363, 1134, 193, 523]
    assert Permutation(3, 1, 1437)(np.arange(8)).tolist() == [107, 960, 820, 560, 534, 802, 1117, 741]
    assert micro_batch_seed(3, 5, 1) == key(3, 3, 5, 1)
    assert mix(0) == 0xE220A8397B1DCDAF  # splitmix64's first output for seed 0, as published
    assert [int(value) for value in mix_array(np.array([0, 5], np.uint64))] == [mix(0), mix(5)]


def test_places_are_taken_evenly() -> None:
    samples, epochs = 16, 4000
    places = np.array([Permutation(0, epoch, samples)(np.arange(samples)) for epoch in range(epochs)])
    for place in range(samples):
        share = np.bincount(places[:, place], minlength=samples) / epochs
        assert abs(share - 1 / samples).max() < 0.02
    # A sample's neighbour is not its neighbour in the next epoch.
    follows = np.mean(np.diff(places, axis=1) == 1)
    assert follows < 2 / samples


@given(counts=runs(), epoch=st.integers(0, 5), data=st.data())
def test_all_instances_and_attempts_together_take_the_epoch(counts: Any, epoch: Any, data: Any) -> None:
    updates = counts.updates_per_epoch
    first = epoch * updates
    # Interrupted between blocks, and continued by any number of instances that divides the micro batches.
    blocks = updates // counts.device_iterations
    cut = first + data.draw(st.integers(0, blocks)) * counts.device_iterations
    others = data.draw(st.sampled_from([n for n in range(1, 13) if counts.micro_batches % n == 0]))
    taken: Counter[int] = Counter()
    for attempt, (begin, end) in ((counts, (first, cut)), (counts._replace(instances=others), (cut, first + updates))):
        for instance in range(attempt.instances):
            if end > begin:
                taken.update(attempt.sample_indices(begin, end - begin, instance).reshape(-1).tolist())
    order = Permutation(counts.seed, epoch, counts.samples)
    seen = np.arange(updates * counts.global_batch) % counts.samples
    assert taken == Counter(order(seen).tolist())
    dropped = counts.samples - len(set(taken))
    assert dropped < counts.block if counts.remainder == "drop" else dropped == 0
    if counts.remainder == "drop":
        assert set(taken.values()) == {1}


@given(counts=runs(), update=st.integers(0, 1000))
def test_an_update_has_the_same_samples_in_the_same_order_whatever_the_number_of_instances(
    counts: Any, update: Any
) -> None:
    alone = counts._replace(instances=1).sample_indices(update, 1, 0)
    shared = [counts.sample_indices(update, 1, instance) for instance in range(counts.instances)]
    assert np.concatenate(shared, axis=1).tolist() == alone.tolist()


@given(counts=runs())
def test_updates_per_epoch_are_as_the_plan_counts_them(counts: Any) -> None:
    whole = counts.samples // counts.block if counts.remainder == "drop" else -(-counts.samples // counts.block)
    assert counts.updates_per_epoch == whole * counts.device_iterations


def test_draws_belong_to_the_sample_not_to_the_batch() -> None:
    updates, slots = np.repeat([7, 8], 6), np.tile(np.arange(6), 2)
    together = Draws(1, updates, slots)
    apart = Draws(1, updates[9:10], slots[9:10])
    for _ in range(3):
        assert together.below(11)[9] == apart.below(11)[0]
    assert together.floats()[9] == apart.floats()[0]


def test_draws_are_even_and_within_bounds() -> None:
    draws = Draws(0, np.zeros(30000, np.int64), np.arange(30000))
    whole, floats = draws.below(3), draws.floats()
    assert (np.bincount(whole) / 30000 - 1 / 3).max() < 0.01
    assert floats.min() >= 0
    assert floats.max() < 1
    assert abs(floats.mean() - 0.5) < 0.01
    assert abs(np.corrcoef(whole, floats)[0, 1]) < 0.02


def test_a_global_batch_above_the_data_set_is_refused_with_both_numbers() -> None:
    counts = Arithmetic(100, 8, 16, 2, 1, "drop", 0)
    with pytest.raises(UserError, match="128 samples, and the data set has 100"):
        check(counts)
    assert check(counts._replace(remainder="pad")).updates_per_epoch == 1


def test_micro_batches_that_do_not_divide_are_refused() -> None:
    with pytest.raises(UserError, match="4 micro batches for 3 instances"):
        check(Arithmetic(100, 1, 4, 3, 1, "drop", 0))


@given(
    samples=st.integers(1, 500),
    micro_batch=st.integers(1, 8),
    accumulation=st.integers(1, 4),
    replicas=st.integers(1, 4),
    device_iterations=st.integers(1, 3),
    remainder=st.sampled_from(["drop", "pad"]),
)
def test_ranks_count_as_the_plan_does(
    samples: int, micro_batch: int, accumulation: int, replicas: int, device_iterations: int, remainder: str
) -> None:
    planned = Batch.of(micro_batch, accumulation, replicas, device_iterations, samples, remainder, 1, None)
    counts = Arithmetic(samples, micro_batch, accumulation * replicas, replicas, device_iterations, remainder, 0)
    assert (counts.global_batch, counts.block) == (planned.global_batch, planned.block)
    assert counts.updates_per_epoch == planned.updates_per_epoch
    assert [tuple(counts.slots(index)[[0, -1]]) for index in range(replicas)] == [
        (first, end - 1) for first, end in (share(planned.global_batch, replicas, index) for index in range(replicas))
    ]
