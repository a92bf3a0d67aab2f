"""`trainjob bench` on two ranks of this machine: figures of every way, and nothing left behind."""

from __future__ import annotations

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


def test_loading_is_drawn(here: Here) -> None:
    here.run("bench", "loader", "--at", "1", "--loaders", "0", "--seconds", "0.1", "--plot", "loader.svg")
    assert (here.project / "loader.svg").read_text().lstrip().startswith("<?xml")
    assert runs_left(here) == []


def test_scaling_refuses_a_command(here: Here) -> None:
    assert "give --task" in here.json("bench", "scaling", "--", "python", "-c", "1", code=1)["error"]
