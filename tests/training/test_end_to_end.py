"""The main job on the real digits, as a user runs it: the one training run of `make test`."""

from __future__ import annotations

from tests.support.local_runs import Here


def test_the_main_job_recognises_held_out_digits(here: Here) -> None:
    ended = here.json("submit", "--cluster", "local", "--instances", "2", "--follow")
    report = ended["report"]
    assert (ended["state"], report["held_out_samples"]) == ("COMPLETED", 360)
    assert report["held_out_accuracy"] >= 0.97
    assert set(report["seconds"]) == {"data", "compute", "communication", "checkpoint"}
