"""A run belongs to nobody's terminal."""

from __future__ import annotations

import json
import os
import signal
import subprocess

from tests.support.local_runs import LIMIT_S, STAY, Here, first_line, what_follows
from tests.support.programs import TRAINJOB
from tests.support.waiting import until


def test_a_run_survives_the_end_of_the_terminal_that_submitted_it(here: Here) -> None:
    here.write("my_script.py", STAY)
    submits = f"{TRAINJOB} submit --json --instances 2 -- python my_script.py; kill -HUP 0; sleep 60"
    shell = subprocess.Popen(
        ["bash", "-c", submits],
        stdout=subprocess.PIPE,
        text=True,
        cwd=here.project,
        env=here.environ,
        start_new_session=True,
    )
    output, _ = shell.communicate(timeout=LIMIT_S)
    assert shell.returncode == -signal.SIGHUP
    run = here.at(json.loads(output)["folder"])
    run.wait_until_ready()
    assert run.status()["state"] == "RUNNING"
    run.release()
    run.wait("COMPLETED")
    assert run.status()["exit_code"] == 0


def test_ctrl_c_in_follow_lets_go_of_the_run(here: Here) -> None:
    here.write("my_script.py", STAY)
    following = here.start("submit", "--instances", "2", "--follow", "--", "python", "my_script.py")
    run = here.at(first_line(following).split()[-1])
    run.wait_until_ready()
    # The terminal sends it to the whole foreground group.
    os.killpg(following.pid, signal.SIGINT)
    rest = what_follows(following)
    assert following.returncode == 130
    assert f"run {run.id} continues without you" in rest
    assert run.status()["state"] == "RUNNING"
    run.release()
    run.wait("COMPLETED")


def test_ctrl_c_in_logs_lets_go_of_the_run(here: Here) -> None:
    run = here.staying()
    following = here.start("logs", run.id, "--follow")
    first_line(following)
    os.killpg(following.pid, signal.SIGINT)
    rest = what_follows(following)
    assert (following.returncode, "Traceback" in rest) == (130, False)
    assert run.status()["state"] == "RUNNING"


def test_the_last_report_of_a_followed_run_says_that_it_is_lost(here: Here) -> None:
    here.write("my_script.py", STAY)
    following = here.start("submit", "--instances", "2", "--follow", "--", "python", "my_script.py")
    run = here.at(first_line(following).split()[-1])
    run.wait_until_ready()
    os.kill(run.script, signal.SIGKILL)
    rest = what_follows(following)
    assert following.returncode == 1
    assert "my_script · LOST" in rest
    until(lambda: not run.processes(), "gone")
    assert run.status()["state"] == "LOST"
