"""How far apart two updates are, and which figures decide."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.crafted_traces import GRADIENT, Crafted
from trainjob.verify.tasks.instances import is_apart
from trainjob.verify.tasks.traces import differences, relative


def apart(tmp_path: Path, **several: Any) -> Any:
    one = Crafted(tmp_path / "one").update(1).read()
    (found,) = differences(Crafted(tmp_path / "several").update(1, **several).read(), one)
    return found


def test_relative_is_of_the_norm_over_all_tensors() -> None:
    expected = {"a": np.array([3.0]), "b": np.array([4.0])}
    assert relative({"a": np.array([3.0]), "b": np.array([4.5])}, expected) == pytest.approx(0.1)


@pytest.mark.parametrize("found", [{}, {"a": np.zeros(2)}, {"b": np.zeros(1)}])
def test_other_names_or_shapes_are_infinitely_apart(found: dict[str, Any]) -> None:
    assert relative(found, {"a": np.zeros(1)}) == math.inf


def test_equal_zeros_are_equal() -> None:
    assert relative({"a": np.zeros(1)}, {"a": np.zeros(1)}) == 0.0


@pytest.mark.parametrize(
    "changed",
    [{"gradient": (1.0, 2.0, -3.1)}, {"parameter": (1.0, 2.0, math.nan)}, {"loss": 0.5001}, {"loss": None}],
)
def test_gradients_parameters_and_loss_decide(tmp_path: Path, changed: dict[str, Any]) -> None:
    assert is_apart(apart(tmp_path, **changed), "float64")


def test_buffers_and_rounding_do_not_decide(tmp_path: Path) -> None:
    assert not is_apart(apart(tmp_path, buffer=(9.0,), gradient=(1.0 + 1e-14, *GRADIENT[1:])), "float64")


def test_float32_is_judged_by_the_first_updates_gradients(tmp_path: Path) -> None:
    found = apart(tmp_path, gradient=(1.001, *GRADIENT[1:]), loss=9.0)
    assert is_apart(found, "float32")
    assert not is_apart(apart(tmp_path / "loss", loss=9.0), "float32")


def test_json_has_null_for_what_nobody_saw_and_text_for_infinities(tmp_path: Path) -> None:
    unseen = apart(tmp_path, loss=None)
    assert unseen.as_json()["loss"] is None
    assert unseen.missing == ["loss"]
    assert dataclasses.replace(unseen, gradients=math.inf).as_json()["gradients"] == "inf"
