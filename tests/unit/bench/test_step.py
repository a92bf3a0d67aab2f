"""`trainjob bench step`: what is concluded from the seconds of every round, and what is not."""

from __future__ import annotations

import pytest

from trainjob.bench.parts import Rounds, Step, judged


def row(name: str, *varied: float, plain: float = 1.0) -> Rounds:
    return Rounds(name, [plain] * len(varied), varied)


CONTROL = row("plain, once more", 1.0, 1.02, 0.98, 1.01, 0.99, 1.0, 1.0)


def second(*rows: Rounds) -> Step:
    return judged([CONTROL, *rows])[1]


def test_a_gain_is_the_median_of_the_rounds_with_its_interval() -> None:
    step = second(row("compile", 0.5, 0.51, 0.49, 0.5, 0.5, 0.52, 0.48))
    assert step.gain == pytest.approx(2.0)
    assert (step.gain_low, step.gain_high) == pytest.approx((1 / 0.52, 1 / 0.48))
    assert step.verdict == "2.00 × as fast"


def test_what_is_slower_is_told() -> None:
    assert second(row("foreach", *[1.25] * 7)).verdict == "slower: takes 1.25 × as long"


@pytest.mark.parametrize("varied", [(0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 1.1), (0.99,) * 7, (0.5, 1.5) * 4])
def test_nothing_is_concluded_where_noise_may_hide_it(varied: tuple[float, ...]) -> None:
    """A round on the other side of 1, a gain no larger than the control's, and rounds that differ widely."""
    assert second(row("fused", *varied)).verdict == "no conclusion: noise hides the difference"


def test_the_control_never_gains() -> None:
    assert not judged([row("plain, once more", *[0.5] * 7)])[0].is_certain


def test_fifteen_rounds_leave_out_three_on_either_side() -> None:
    step = second(row("compile", *[0.1] * 3, *[0.5] * 9, *[3.0] * 3))
    assert (step.gain_low, step.gain_high) == (2.0, 2.0)


def test_what_cannot_be_had_says_why() -> None:
    assert second(Rounds("fused", why="engine is fsdp")).verdict == "not here: engine is fsdp"
