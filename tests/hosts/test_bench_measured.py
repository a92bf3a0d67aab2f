"""`trainjob bench` on two ranks of this machine: figures of every way, and nothing left behind."""

from __future__ import annotations

from local_runs import Here
from verdicts import runs_left


def test_all_reduce_is_measured_three_ways_on_two_ranks(here: Here) -> None:
    asked = ("--instances", "2", "--megabytes", "0.016", "--tensors", "4")
    rows = here.json("bench", "collective", *asked)
    assert [(row["way"], row["bytes"]) for row in rows] == [("one by one", 16000), ("flat", 16000), ("bucketed", 16000)]
    assert all(row["seconds"] > 0 for row in rows)
    assert runs_left(here) == []


def test_loading_is_measured_for_each_number_of_workers_on_two_ranks(here: Here) -> None:
    rows = here.json("bench", "loader", "--at", "2", "--loaders", "0", "--seconds", "0.1")
    assert [(row["instances"], row["workers"]) for row in rows] == [(2, 0)]
    assert rows[0]["samples_per_s"] > 1000
    assert runs_left(here) == []


def test_the_appetite_is_measured_and_said_with_a_plot(here: Here) -> None:
    asked = ("--at", "1", "--loaders", "0", "--seconds", "0.2", "--measure-appetite", "--plot", "loader.svg")
    told = here.run("bench", "loader", *asked).stdout
    assert "measured here with samples in memory" in told
    assert "loader-bound" in told
    assert (here.project / "loader.svg").read_text().lstrip().startswith("<?xml")
    assert runs_left(here) == []


def test_the_toy_net_is_grown_in_model_and_in_data(here: Here) -> None:
    sizes = ("--width", "10", "--width", "20", "--size", "256", "--size", "512")
    rows = here.json("bench", "growth", *sizes, "--at", "1", "--measured-epochs", "1", "--plot", "growth.svg")
    assert [(row["width"], row["samples"], row["parameters"]) for row in rows] == [
        (10, 256, 1241),
        (20, 256, 2881),
        (10, 512, 1241),
    ]
    assert all(row["seconds_per_epoch"] > 0 for row in rows)
    assert (here.project / "growth.svg").exists()


def test_scaling_refuses_a_command(here: Here) -> None:
    assert "give --task" in here.json("bench", "scaling", "--", "python", "-c", "1", code=1)["error"]
