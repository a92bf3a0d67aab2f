"""What the ranks of a script show by themselves, and beside one rank alone, is named."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import pytest

from tests.support.cases import each
from tests.unit.verify.test_script_resume import update
from trainjob.records import updates
from trainjob.verify.scripts.ranks import among_ranks, with_one
from trainjob.verify.scripts.update_log import AttemptLog, LoadedBatch, ScriptEvent, ScriptUpdate

RANKS = 2


def taking(number: int, samples: Sequence[int], **changes: Any) -> ScriptUpdate:
    batch = LoadedBatch(1, number, tuple(str(sample) for sample in samples))
    return dataclasses.replace(update(number), **{"batches": (batch,), "random_before": "undrawn", **changes})


def rank(number: int, *, events: Sequence[ScriptEvent] = (), **changes: Any) -> AttemptLog:
    """Return what a rank records that takes every other sample, two an update."""
    made = tuple(taking(one, [4 * one + number, 4 * one + 2 + number], **changes) for one in range(4))
    return AttemptLog(1, made, tuple(events))


ONE = AttemptLog(1, tuple(taking(one, range(4 * one, 4 * one + 4)) for one in range(4)))


def codes(*ranks: AttemptLog) -> list[str]:
    return [one.code for one in among_ranks(ranks)]


def passing(sampler_rank: int | None, *, replicas: int = RANKS, local_rank: int = 0, seed: int = 0) -> ScriptEvent:
    fields = {"sampler_rank": sampler_rank, "replicas": replicas, "local_rank": local_rank, "seed": seed}
    return ScriptEvent(updates.PASS, 0, fields)


def meeting(rank: int, at_start: int) -> ScriptEvent:
    return ScriptEvent(updates.JOINS, 0, {"rank": str(rank), "rank_at_start": str(at_start)})


def saving(path: str) -> ScriptEvent:
    return ScriptEvent(updates.SAVED, 4, {"path": path})


def test_ranks_that_share_the_work_are_right() -> None:
    right = [rank(number, events=[passing(number), saving(f"rank{number}.pt")]) for number in range(RANKS)]
    assert codes(*right) == []
    assert list(with_one(right, ONE)) == []


@each(
    ("second", "code"),
    [
        (rank(0), "same-samples"),
        (rank(1, events=[passing(0)]), "sampler-rank"),
        (rank(1, events=[passing(0, replicas=1)]), "sampler-rank"),
        (rank(1, events=[passing(1, seed=7)]), "order-per-rank"),
        (rank(1, events=[meeting(0, at_start=1)]), "init-rank"),
        (rank(1, weights_before="others"), "weights-apart"),
        (rank(1, gradients="others"), "not-synchronised"),
        (rank(1, events=[saving("last.pt")]), "all-save"),
        (AttemptLog(1, tuple(taking(one, [14 - 4 * one, 12 - 4 * one]) for one in range(4))), "order-per-rank"),
    ],
)
def test_what_two_ranks_show_is_named(second: AttemptLog, code: str) -> None:
    assert codes(rank(0, events=[passing(0), saving("last.pt")]), second) == [code]


@pytest.mark.parametrize(
    ("shuffles", "epochs", "again", "found"),
    [
        (True, (0, 0), True, ["same-order"]),
        (True, (0, 1), True, []),
        (False, (0, 0), True, []),
        (True, (0, 0), False, []),
    ],
)
def test_an_order_that_comes_again_is_named_where_the_sampler_shuffles(
    shuffles: bool, epochs: tuple[int, int], again: bool, found: list[str]
) -> None:
    def of_rank(number: int) -> AttemptLog:
        events, made = [], []
        for at, epoch in enumerate(epochs, start=1):
            fields = {**passing(number).fields, "number": at, "shuffles": shuffles, "epoch": epoch}
            events.append(ScriptEvent(updates.PASS, 2 * at - 2, fields))
            for place in range(2):
                first = 4 * (place if again else 2 * at + place) + number
                batch = LoadedBatch(at, place, (str(first), str(first + 2)))
                made.append(dataclasses.replace(update(2 * at - 2 + place), batches=(batch,)))
        return AttemptLog(1, tuple(made), tuple(events))

    assert codes(of_rank(0), of_rank(1)) == found


def test_ranks_without_loaders_are_distinguished_by_their_losses() -> None:
    def with_losses(*losses: float) -> AttemptLog:
        made = (dataclasses.replace(update(one), batches=(), losses=(loss,)) for one, loss in enumerate(losses))
        return AttemptLog(1, tuple(made))

    assert codes(with_losses(3.0, 2.0, 1.0), with_losses(3.0, 2.0, 1.0)) == ["same-samples"]
    assert codes(with_losses(3.0, 2.0, 1.0), with_losses(3.0, 2.5, 1.5)) == []
    assert codes(with_losses(1.0, 1.0, 1.0), with_losses(1.0, 1.0, 1.0)) == []  # whatever the samples are


@pytest.mark.parametrize("change", [{}, {"divided": True}, {"batches": ()}])
def test_micro_batches_are_divided_or_are_none(change: dict[str, Any]) -> None:
    first, second = (rank(number, losses=(1.0, 1.0), divided=False) for number in range(RANKS))
    two_batches = [
        AttemptLog(1, tuple(dataclasses.replace(one, **{"batches": one.batches * 2, **change}) for one in log.updates))
        for log in (first, second)
    ]
    assert codes(*two_batches) == ([] if change else ["accumulation-not-divided"])


def test_ranks_that_share_a_replica_are_right() -> None:
    tensor_parallel = [rank(0, events=[passing(0, replicas=1, local_rank=number)]) for number in range(RANKS)]
    apart = dataclasses.replace(tensor_parallel[1], updates=rank(0, weights_before="another part").updates)
    assert codes(tensor_parallel[0], apart) == []
    stages = [rank(0, losses=()), rank(0, weights_before="another stage")]
    assert codes(*stages) == []


def test_data_that_repeats_itself_tells_nothing() -> None:
    alike = AttemptLog(1, tuple(taking(one, [1, 2]) for one in range(4)))
    assert codes(alike, alike) == []


def test_sharded_weights_may_differ() -> None:
    parts = [
        rank(number, weights_before=f"part {number}", gradients=f"part {number}", sharded=True) for number in (0, 1)
    ]
    assert codes(*parts) == []


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"norm": 2.0}, "mean-against-sum"),
        ({"norm": 0.5}, "mean-against-sum"),
        ({"norm": 0.7}, "other-result"),
        ({"losses": (3.0,)}, "other-result"),
        ({"losses": (ONE.updates[0].losses[0] / RANKS,), "norm": 0.5}, "sum-of-losses"),
    ],
)
def test_what_one_rank_shows_is_named(change: dict[str, Any], code: str) -> None:
    several = [rank(0, **change), rank(1, **change)]
    assert [one.code for one in with_one(several, ONE)] == [code]


def test_a_loss_that_is_divided_by_the_samples_of_all_ranks_is_right() -> None:
    part: dict[str, Any] = {"losses": (ONE.updates[0].losses[0] / RANKS,)}
    assert list(with_one([rank(0, **part), rank(1, **part)], ONE)) == []


def test_random_draws_are_distinguished_from_mistakes() -> None:
    drawing = dataclasses.replace(
        ONE, updates=tuple(dataclasses.replace(one, random_before=one.weights) for one in ONE.updates)
    )
    several = [rank(0, losses=(3.0,)), rank(1, losses=(3.0,))]
    assert [one.code for one in with_one(several, drawing)] == ["random-draws"]
    assert [one.code for one in with_one([rank(0, norm=2.0), rank(1, norm=2.0)], drawing)] == ["mean-against-sum"]


def test_samples_that_are_drawn_anew_are_random_although_a_rank_draws_as_one_does() -> None:
    def drawn(one: AttemptLog, kept: int) -> AttemptLog:
        made = []
        for taken in one.updates:
            (batch,) = taken.batches
            samples = tuple(
                name if at < kept else f"{name} of {len(batch.samples)}" for at, name in enumerate(batch.samples)
            )
            batches = (dataclasses.replace(batch, samples=samples),)
            made.append(dataclasses.replace(taken, batches=batches, random_before=taken.weights))
        return dataclasses.replace(one, updates=tuple(made))

    several = [drawn(rank(0), 1), drawn(rank(1), 0)]
    assert [one.code for one in with_one(several, drawn(ONE, 1))] == ["random-draws"]
    assert [one.code for one in with_one([rank(0), drawn(rank(1), 1)], ONE)] == ["other-samples"]


def test_statistics_of_each_ranks_batch_are_distinguished_from_mistakes() -> None:
    one = dataclasses.replace(ONE, events=(ScriptEvent(updates.NORMALISES, 0, {}),))
    several = [rank(0, losses=(3.0,)), rank(1, losses=(3.0,))]
    assert [cause.code for cause in with_one(several, one)] == ["batch-norm"]


def test_a_rate_of_0_is_a_mistake_once_a_whole_epoch_had_it() -> None:
    still: dict[str, Any] = {"weights": "same", "weights_before": "same", "rates": (0.0,)}
    assert codes(rank(0, **still), rank(1, **still)) == []
    ended = [ScriptEvent(updates.PASS_ENDED, 4, {})]
    assert codes(rank(0, events=ended, **still), rank(1, **still)) == ["weights-unchanged"]


def test_an_all_reduce_without_gradient_is_distinguished_from_a_sum() -> None:
    short = rank(0, norm=0.5, events=[ScriptEvent(updates.REDUCES_LOSS, 0, {})]), rank(1, norm=0.5)
    assert [one.code for one in with_one(short, ONE)] == ["reduced-without-gradient"]


def test_another_learning_rate_is_reported() -> None:
    scaled = [rank(number, rates=(0.8,)) for number in range(RANKS)]
    assert [one.code for one in with_one(scaled, ONE)] == ["learning-rate"]


def test_ranks_that_a_script_starts_itself_are_reported() -> None:
    assert codes(rank(0, events=[meeting(0, 0), meeting(1, 0)]), rank(1)) == ["command-per-node"]


@each(
    ("changes", "code"),
    [
        ({"losses": (float("nan"),)}, "not-finite"),
        ({"losses": (float("inf"),), "scale": None}, "not-finite"),
        ({"norm": float("nan"), "scale": None}, "not-finite"),
        ({"with_gradient": 0, "norm": 0.0}, "other-weights"),
        ({"weights": "same", "weights_before": "same"}, "weights-unchanged"),
        ({"kept": True}, "not-zeroed"),
        ({"evaluating": True}, "evaluation-mode"),
        ({"events": [ScriptEvent(updates.CLIPS_SCALED, 0, {})]}, "clips-scaled"),
        ({"events": [ScriptEvent(updates.REDUCES_GRADIENTS, 0, {})]}, "reduced-twice"),
        ({"losses": (float("inf"),), "norm": float("inf"), "scale": 65536.0}, None),
    ],
)
def test_mistakes_that_raise_no_error_are_reported(changes: dict[str, Any], code: str | None) -> None:
    found = codes(rank(0, **changes), rank(1, **changes))
    assert found == ([] if code is None else [code])


def test_evaluation_mode_that_is_left_again_is_right() -> None:
    made = rank(0).updates
    mixed = AttemptLog(1, (made[0], dataclasses.replace(made[1], evaluating=True), *made[2:]))
    assert codes(mixed, rank(1)) == []


def test_one_rank_that_takes_other_batches_is_other_work() -> None:
    several = [rank(0), rank(1)]
    assert [one.code for one in with_one(several, rank(0))] == ["different-work"]
    moved = AttemptLog(1, tuple(taking(one, range(4 * one + 1, 4 * one + 5)) for one in range(4)))
    assert [one.code for one in with_one(several, moved)] == ["other-samples"]


def test_losses_that_are_added_are_named() -> None:
    halves = [dataclasses.replace(one, losses=(one.losses[0], one.losses[0])) for one in ONE.updates]
    assert [one.code for one in with_one([rank(0), rank(1)], AttemptLog(1, tuple(halves)))] == [
        "accumulation-not-divided"
    ]
