"""Which cause the evidence of two traces points to, and which it must not be taken for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.crafted_traces import GRADIENT, Crafted
from trainjob.verify.tasks.diagnosis import TraceEvidence, diagnose
from trainjob.verify.tasks.instances import is_apart
from trainjob.verify.tasks.traces import TOLERANCE, difference, differences

ONE = [{"0": ["a", "b"], "1": ["c", "d"]}]
TWICE = tuple(2 * value for value in GRADIENT)
OTHER = (3.0, -1.0, 0.5)


@pytest.fixture
def crafted(tmp_path: Path) -> Any:
    return lambda name, **model: Crafted(tmp_path / name, **model)


@pytest.fixture
def one(crafted: Any) -> Any:
    return crafted("one").update(1, samples=ONE, gradients="g", parameters="p")


def codes(several: Any, one: Any, instances: int = 2, control: Any = None) -> list[Any]:
    several, one = several.read(), one.read()
    apart = [found for found in differences(several, one) if is_apart(found, "float64")]
    return [
        finding.code
        for finding in diagnose(TraceEvidence(several, one, instances, apart, TOLERANCE["float64"], control))
    ]


def ranks(*second: Any) -> list[dict[str, Any]]:
    return [{"0": ["a", "b"]}, {"1": list(second)}]


@pytest.mark.parametrize(
    ("second", "code"),
    [
        (("d", "c"), "sample-order"),
        (("a", "b"), "padding"),
        (("x", "d"), "sample-values"),
        (("c",), "uneven-batch"),
    ],
)
def test_other_samples_come_before_what_follows_from_them(
    crafted: Any, one: Any, second: tuple[Any, ...], code: str
) -> None:
    several = crafted("several", repeatable=False).update(1, gradient=TWICE, samples=ranks(*second))
    assert codes(several, one) == [code]


def test_ranks_that_shuffle_for_themselves_are_not_taken_for_padding(crafted: Any) -> None:
    several, one = crafted("several"), crafted("one")
    epoch = [(["a", "b"], ["c", "d"], ["a", "g"]), (["e", "f"], ["g", "h"], ["e", "h"])]
    for number, (first, second, instead) in enumerate(epoch, 1):
        several.update(number, gradient=OTHER, samples=[{"0": first}, {"1": instead}])
        one.update(number, samples=[{"0": first, "1": second}], gradients="g", parameters="p")
    assert codes(several, one) == ["sample-order"]


def test_gradients_of_their_own_are_parameter_averaging_only_where_weights_meet(crafted: Any, one: Any) -> None:
    alone = crafted("alone").update(1, gradient=OTHER, gradients="gh", parameters="pq")
    assert codes(alone, one) == ["not-synchronised"]
    alone.update(2, gradient=OTHER, gradients="gh", parameters="pp")
    assert codes(alone, one) == ["parameter-averaging"]


def test_a_multiple_of_the_gradients_is_a_sum(crafted: Any, one: Any) -> None:
    assert codes(crafted("several").update(1, gradient=TWICE), one) == ["mean-against-sum"]


def test_a_sum_that_clipping_hides_is_seen_by_the_loss(crafted: Any, one: Any) -> None:
    assert codes(crafted("several").update(1, loss=1.0), one) == ["mean-against-sum"]
    assert codes(crafted("offset").update(1, loss=0.7), one) == ["unknown"]


@pytest.mark.parametrize(
    ("model", "found"),
    [
        ({"repeatable": False}, ["dropout-stream"]),
        ({"repeatable": False, "reads_buffers": True}, ["dropout-stream"]),
        ({"reads_buffers": True}, ["batch-norm-not-synchronised"]),
        ({"layers": ("Linear", "SyncBatchNorm")}, ["batch-norm-synchronised"]),
        ({"layers": ("BatchNorm1d",)}, ["unknown"]),
        ({}, ["unknown"]),
    ],
)
def test_the_model_is_looked_at_last(crafted: Any, one: Any, model: dict[str, Any], found: list[str]) -> None:
    assert codes(crafted("several", **model).update(1, gradient=OTHER), one) == found


NEARLY = tuple(value + 1e-5 * turn for value, turn in zip(GRADIENT, (1, -1, 1), strict=True))


@pytest.mark.parametrize(
    ("apart", "first", "rounding", "found"),
    [
        (NEARLY, 2, NEARLY, ["amplified-rounding"]),
        (NEARLY, 1, OTHER, ["unknown"]),  # nothing was rounded before
        (OTHER, 2, NEARLY, ["unknown"]),  # a mistake is larger than what rounding does
        (NEARLY, 2, GRADIENT, ["unknown"]),  # small, and rounding does nothing
    ],
)
def test_what_rounding_does_by_itself_is_no_mistake(
    crafted: Any, one: Any, apart: Any, first: int, rounding: Any, found: list[str]
) -> None:
    one.update(2, samples=ONE, gradients="g", parameters="p")
    several = crafted("several")
    for number in (1, 2):
        several.update(number, gradient=apart if number >= first else GRADIENT)
    nudged = difference(crafted("nudged").update(1, gradient=rounding).read().update(1), one.read().update(1))
    assert codes(several, one, control=lambda _update: nudged) == found


def test_a_control_is_trained_only_where_no_other_clue_fits(crafted: Any, one: Any) -> None:
    def control(_update: Any) -> None:
        raise AssertionError("this trains for nothing")

    assert codes(crafted("several").update(1, gradient=TWICE), one, control=control) == ["mean-against-sum"]


def test_no_gradient_at_all_is_no_multiple(crafted: Any) -> None:
    one = crafted("one").update(1, gradient=(0.0, 0.0, 0.0), samples=ONE, gradients="g", parameters="p")
    assert codes(crafted("several").update(1), one) == ["unknown"]
