"""Cancel ends every process of one run, and no other."""

from __future__ import annotations

import json
import os
import signal

from tests.support.local_runs import Here, what_follows
from tests.support.waiting import until


def test_a_rank_may_end_well_when_it_is_cancelled(here: Here) -> None:
    # Not by `print`, which may be in the middle of "ready".
    catches = "import os, signal, sys, time; signal.signal(15, lambda *_: sys.exit(os.write(1, b'saved') - 5))"
    run = here.submit("python", "-c", f"{catches}\nprint('ready', flush=True)\ntime.sleep(600)")
    run.wait_until_ready()
    here.run("cancel", run.id)
    assert "saved" in run.log(0)
    assert "saved" in run.log(1)
    assert (run.word("state"), run.status()["failure"]) == ("CANCELLED", None)


def test_cancel_of_an_ended_run_changes_nothing(here: Here) -> None:
    run = here.follow("true")
    before = (run.folder / "submission.json").read_bytes()
    assert f"run {run.id} is COMPLETED" in here.run("cancel", run.id).stdout
    assert (run.folder / "submission.json").read_bytes() == before


def test_a_run_whose_script_is_killed_while_it_is_cancelled_is_cancelled(here: Here) -> None:
    run = here.staying("--deaf")
    cancelling = here.start("cancel", run.id, "--grace-s", "1000")
    until(lambda: json.loads((run.folder / "submission.json").read_text())["cancelled_at"], "cancelled_at")
    os.kill(run.script, signal.SIGKILL)
    # Long before the grace is over.
    assert f"run {run.id} is CANCELLED" in what_follows(cancelling)
    assert not run.processes()
    assert "killed when it was cancelled" in here.run("status", run.id).stdout


def test_cancel_of_a_run_that_was_started_by_hand_says_where_to_end_it(here: Here) -> None:
    here.run("render", "--cluster", "local", "-o", "job", "--", "true")
    (here.project / "job" / "state").write_text("RUNNING\n")
    assert "was not submitted by trainjob" in here.run("cancel", "./job", code=1).stderr


def test_a_stop_is_asked_of_a_run_that_goes_on_and_of_no_other(here: Here) -> None:
    run = here.staying()
    assert here.json("cancel", run.id, "--stop")["state"] == "RUNNING"
    assert (run.folder / "stop").exists()
    ended = here.follow("true")
    here.run("cancel", ended.id, "--stop")
    assert not (ended.folder / "stop").exists()
