"""`trainjob bench` on two ranks of this machine: figures of every way, and nothing left behind."""

from __future__ import annotations

import pytest

from tests.support.local_runs import Here
from tests.support.verdicts import runs_left


def test_all_reduce_is_measured_three_ways_on_two_ranks(here: Here) -> None:
    asked = ("--instances", "2", "--megabytes", "0.016", "--tensors", "4", "--bucket-mb", "0.004,0.016")
    rows = here.json("bench", "collective", *asked)
    ways = [("one by one", None), ("flat", None), ("bucketed", 0.004), ("bucketed", 0.016)]
    assert [(row["way"], row["bucket_mb"]) for row in rows] == ways
    assert {row["bytes"] for row in rows} == {16000}
    assert all(row["seconds"] > 0 for row in rows)
    assert runs_left(here) == []


def test_loading_is_measured_for_each_number_of_workers_on_two_ranks(here: Here) -> None:
    rows = here.json("bench", "loader", "--at", "2", "--loaders", "0", "--seconds", "0.1")
    assert [(row["instances"], row["workers"]) for row in rows] == [(2, 0)]
    assert rows[0]["samples_per_s"] > 1000
    assert runs_left(here) == []


def test_the_training_rate_is_measured_and_said_with_a_plot(here: Here) -> None:
    asked = ("--at", "1", "--loaders", "0", "--seconds", "0.2", "--measure-training-rate", "--plot", "loader.svg")
    told = here.run("bench", "loader", *asked).stdout
    assert "measured here with samples in memory" in told
    assert "loader-bound" in told
    assert (here.project / "loader.svg").read_text().lstrip().startswith("<?xml")
    assert runs_left(here) == []


_STEPS = ("fused", "channels-last")


@pytest.mark.parametrize("names", [_STEPS, pytest.param(("compile", "foreach", *_STEPS), marks=pytest.mark.full)])
def test_variations_of_a_step_take_turns_with_the_plain_one_on_two_ranks(here: Here, names: tuple[str, ...]) -> None:
    asked = ("--instances", "2", "--engine", "naive", "--micro-batch", "4", "--rounds", "6", "--seconds", "0.01")
    flags = [word for name in names for word in ("--variation", name)]
    rows = {row["name"]: row for row in here.json("bench", "step", *asked, *flags)}
    assert list(rows) == ["plain, once more", *names]
    refused = rows.pop("channels-last")
    assert refused["gain"] is None
    assert "engine is naive" in refused["why"]
    for row in rows.values():
        assert (row["rounds"], row["why"]) == (6, "")
        assert 0 < row["gain_low"] <= row["gain"] <= row["gain_high"]
    assert runs_left(here) == []


def test_scaling_refuses_a_command(here: Here) -> None:
    assert "give --task" in here.json("bench", "scaling", "--", "python", "-c", "1", code=1)["error"]
