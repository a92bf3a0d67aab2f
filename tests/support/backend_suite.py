"""What every back end does alike, here and over ssh. A file of tests/backends runs it for each kind of cluster."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.backend_places import Place
from tests.support.waiting import until

pytestmark = pytest.mark.timeout(480)


def test_a_command_runs_to_its_end_and_its_record_says_so(place: Place) -> None:
    run = place.submit("--follow", "--", "python", "codes.py", "0", "0")
    status = run.status()
    assert [status[key] for key in ("state", "exit_code", "attempt", "failure")] == ["COMPLETED", 0, 1, None]
    for rank in (0, 1):
        lines = place.json("logs", run.id, "--rank", str(rank))["lines"]
        assert lines[0].startswith(f"--- attempt 1 · rank {rank} of 2 · "), lines
        assert f"rank {rank} of 2 says ['0', '0']" in lines
    listed = {one["id"]: one for one in place.json("list")}
    assert (listed[run.id]["state"], listed[run.id]["cluster"]) == ("COMPLETED", place.cluster)
    run.wait_until_nothing_is_left()


# Far away, the test above reads the same records over ssh.
@pytest.mark.elsewhere_in_full
def test_a_failing_rank_gives_its_exit_code_and_is_named(place: Place) -> None:
    run = place.submit("--follow", "--", "python", "codes.py", "0", "3", code=1)
    status = run.status()
    assert (status["state"], status["exit_code"]) == ("FAILED", 3), run.everything()
    assert (status["failure"]["rank"], status["failure"]["exit_code"]) == (1, 3)
    assert any("rank 1 of 2 says" in line for line in status["failure"]["tail"])
    run.wait_until_nothing_is_left()


@pytest.mark.elsewhere_in_full
def test_cancel_ends_every_process_of_one_run_and_no_other(place: Place) -> None:
    other = place.staying()
    for word, grace_s in (("--listening", "20"), ("--deaf", "1")):
        run = place.staying(word)
        before = set(other.processes())
        assert place.json("cancel", run.id, "--grace-s", grace_s)["state"] == "CANCELLED"
        run.wait_until_nothing_is_left()
        assert run.status()["state"] == "CANCELLED"
        assert before <= set(other.processes())
    assert other.status()["state"] == "RUNNING"
    place.trainjob("cancel", other.id)
    other.wait_until_nothing_is_left()


def test_ranks_show_where_they_are_and_what_they_use(place: Place) -> None:
    run = place.staying()
    shown = place.json("stacks", run.id)
    assert [one["rank"] for one in shown] == [0, 1]
    assert all('stay.py", line' in one["processes"][0]["stack"] for one in shown), shown
    used = place.json("usage", run.id)
    assert [(one["rank"], one["host"]) for one in used] == [(one["rank"], one["host"]) for one in shown]
    assert all(one["memory_bytes"] > 1 << 20 for one in used), used
    words = ("--", "sh", "-c", 'echo "$RANK $TRAINJOB_RUN_DIR" && test -e stay.py && exit 7')
    assert place.trainjob("shell", run.id, "--rank", "1", *words, code=7).splitlines()[-1].startswith("1 /")
    place.trainjob("cancel", run.id)
    run.wait_until_nothing_is_left()


# The longest of the suite. tests/services resumes runs over ssh, too.
@pytest.mark.elsewhere_in_full
def test_a_stopped_run_resumes_to_the_same_weights(place: Place, uninterrupted: dict[type[Place], Any]) -> None:
    stopped = place.submit(*place.task(slow=True))
    stopped.wait_for_updates(2)
    place.trainjob("cancel", stopped.id, "--stop")
    stopped.wait("STOPPED")
    at = stopped.wait_for_status("STOPPED")["update"]
    assert 0 < at < 24
    place.trainjob("resume", stopped.id, "--follow")
    status = stopped.status()
    assert [status[key] for key in ("state", "attempt", "update")] == ["COMPLETED", 2, 24], stopped.everything()
    assert f"from the checkpoint of update {at} to update 24" in stopped.log(0)
    reported = place.json("report", stopped.id)
    goodput, whats = reported["goodput"], [(one["attempt"], one["what"]) for one in reported["events"]]
    assert (goodput["lost_updates_s"], goodput["unrecorded_s"]) == (0, 0)
    assert min(goodput[part] for part in ("share", "final_weights_s", "start_up_s", "ending_s")) > 0
    ends = [what for what in whats if what[1] not in ("signal", "launch", "compiled")]
    assert ends == [(n, end) for n in (1, 2) for end in ("began", "ended")]
    if type(place) not in uninterrupted:
        uninterrupted[type(place)] = place.submit("--follow", *place.task()).weights()
    assert stopped.weights()["update-00000024"] == uninterrupted[type(place)]["update-00000024"]


# The job script and its ranks do it among themselves, wherever the user is.
@pytest.mark.in_one_place
def test_a_newer_attempt_fences_the_older_one(place: Place) -> None:
    run = place.submit(*place.task(slow=True))
    run.wait_for_updates(2)
    place.start_by_hand(run.folder)
    until(lambda: run.word("attempt") == "2", "attempt 2")
    run.wait("COMPLETED")
    run.wait_until_nothing_is_left()
    words = [run.word(name) for name in ("attempt", "state", "exit_code")]
    assert words == ["2", "COMPLETED", "0"], run.everything()
    written = [json.loads(line) for line in run.word("metrics.jsonl").splitlines()]
    attempts = [one["attempt"] for one in written]
    assert attempts == sorted(attempts), "the older attempt wrote beside the newer one"


# Over ssh, see tests/services/pod/test_over_ssh.py.
@pytest.mark.elsewhere_in_full
def test_a_killed_script_is_told_in_the_status_and_the_run_resumes(place: Place) -> None:
    run = place.staying()
    run.kill(run.script())
    run.wait_for_status(place.script_killed)
    place.trainjob("cancel", run.id)
    run.wait_until_nothing_is_left()
    place.trainjob("resume", run.id, "--follow")
    assert (run.status()["state"], run.word("attempt")) == ("COMPLETED", "2")


@pytest.mark.elsewhere_in_full
@pytest.mark.parametrize("victim", ["launcher", "rank"])
def test_a_kill_below_the_script_fails_the_run_and_leaves_nothing(place: Place, victim: str) -> None:
    run = place.staying()
    run.kill(run.launcher() if victim == "launcher" else run.rank())
    run.wait("FAILED")
    run.wait_until_nothing_is_left()
    assert run.status()["state"] == "FAILED"
    if victim == "rank":
        assert "exit code 137 (SIGKILL)" in place.trainjob("status", run.id)
    place.trainjob("resume", run.id, "--follow")
    assert (run.status()["state"], run.word("attempt")) == ("COMPLETED", "2")
