"""What back ends of GPUs and CPUs do alike with a run of another cluster: it goes on there, from a copy."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.backend_places import Place
from tests.support.waiting import until


def stopped(place: Place) -> str:
    """Return the id of a run of this machine that was stopped at work, without its user's project beside it."""
    run = place.json("submit", "--cluster", "local", "--again", "--instances", "2", *place.task(slow=True))["id"]
    until(lambda: (place.json("status", run)["update"] or 0) >= 2, f"two updates of {run}")
    place.trainjob("cancel", run, "--stop")
    until(lambda: place.json("status", run)["state"] == "STOPPED", f"{run} STOPPED")
    return str(run)


def test_a_run_of_this_machine_goes_on_elsewhere_to_the_same_weights(
    place: Place, uninterrupted: dict[type[Place], Any]
) -> None:
    run = stopped(place)
    before = place.json("status", run)
    told = place.trainjob("resume", run, "--cluster", place.cluster, "--follow")
    moved = place.at(told.partition(f"run {run} continues as run ")[2].partition(":")[0])
    assert f"on {place.cluster}" in told
    if place.cluster != "local":
        assert f"its plan on {place.cluster}, and what it was on local:\n" in told
        assert "(was 1: localhost)\n" in told
    status = moved.status()
    assert [status[key] for key in ("state", "attempt", "update")] == ["COMPLETED", 2, 24], moved.everything()
    assert f"from the checkpoint of update {before['update']} to update 24" in moved.log(0)
    assert [one["attempt"] for one in place.json("report", moved.id)["events"] if one["what"] == "began"] == [1, 2]
    if type(place) not in uninterrupted:
        uninterrupted[type(place)] = place.submit("--follow", *place.task()).weights()
    assert moved.weights()["update-00000024"] == uninterrupted[type(place)]["update-00000024"]
    # The first one is as it was, and says where it went on.
    after = place.json("status", run)
    assert (after["state"], after["note"]) == ("STOPPED", f"went on as run {moved.id}")
    assert f"run {run} went on as run {moved.id}" in place.call_trainjob("resume", run)[2]


@pytest.mark.elsewhere_in_full
def test_a_run_comes_back_to_this_machine(place: Place) -> None:
    run = place.submit(*place.task(slow=True))
    run.wait_for_updates(2)
    place.trainjob("cancel", run.id, "--stop")
    at = run.wait_for_status("STOPPED")["update"]
    told = place.trainjob("resume", run.id, "--cluster", "local", "--follow")
    back = told.partition(f"run {run.id} continues as run ")[2].partition(":")[0]
    assert [place.json("status", back)[key] for key in ("state", "attempt", "update")] == ["COMPLETED", 2, 24]
    assert f"from the checkpoint of update {at} to update 24" in place.trainjob("logs", back)
