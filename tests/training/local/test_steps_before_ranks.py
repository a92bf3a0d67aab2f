"""once: in a job file, on this machine: before the ranks, once, with what the ranks get, and ended with the run."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.local_runs import Here, Run, command_of, every_process
from tests.support.waiting import until

TELL = "echo $TRAINJOB_ATTEMPT $OWN $TOKEN $PWD >>$TRAINJOB_RUN_DIR/%s"
# Fails in its first attempt.
SCRIPT = "import os, sys\nsys.exit(os.environ['TRAINJOB_ATTEMPT'] == '1')\n"
# Ends when it is asked for a checkpoint.
WAITS = """\
import signal, time
told = []
signal.signal(signal.SIGUSR1, lambda number, frame: told.append(number))
while not told:
    time.sleep(0.02)
print("SIGUSR1", flush=True)
"""


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Here]:
    here = Here(tmp_path)
    here.write("my_script.py", SCRIPT)
    yield here
    here.end_everything()


def submit(here: Here, once: dict[str, Any], *words: str, code: int = 0) -> Run:
    job = here.folder / "job.yaml"
    job.write_text(json.dumps({"command": ["python", "my_script.py"], "once": once, "env": {"OWN": "mine"}}))
    shown = here.run("submit", "--instances", "2", "--job", str(job), *words, "--json", code=code)
    return here.at(json.loads(shown.stdout)["folder"])


def test_steps_get_what_ranks_get_and_those_of_the_job_are_not_repeated(here: Here) -> None:
    here.folder.joinpath("secrets.env").write_text("TOKEN=secret\n")
    here.folder.joinpath("secrets.env").chmod(0o600)
    cluster = here.folder / "mine.yaml"
    cluster.write_text(f"kind: local\npython: python3\nsecrets_file: {here.folder}/secrets.env\n")
    once = {"job": [{"shell": TELL % "job"}], "node": [{"shell": TELL % "node"}]}
    run = submit(here, once, "--cluster", str(cluster), "--follow", code=1)
    here.run("resume", run.id, "--follow")
    project = run.folder / "code" / "project"
    assert run.word("job") == f"1 mine secret {project}"
    assert run.word("node").splitlines() == [f"{attempt} mine secret {project}" for attempt in (1, 2)]


def test_a_step_that_fails_ends_the_run_before_any_rank_and_status_and_report_name_it(here: Here) -> None:
    run = submit(here, {"job": [{"shell": "echo no such model; exit 4", "name": "model"}]}, "--follow", code=1)
    assert run.log(0) == ""
    status = run.status()
    assert (status["state"], status["exit_code"]) == ("FAILED", 4)
    assert (status["failure"]["step"], status["failure"]["tail"]) == ("step model (once.job)", ["no such model"])
    assert (status["cause"]["code"], status["cause"]["resume"]) == ("step-failed", True)
    for command in ("status", "report"):
        assert "step model (once.job) on host" in here.run(command, run.id).stdout
    assert "step model (once.job) on" in here.run("status", run.id).stdout.partition("why:")[2]


@pytest.mark.parametrize("where", ["job", "node"])
def test_a_cancel_ends_the_step_that_runs(here: Here, where: str) -> None:
    run = submit(here, {where: [{"shell": "echo begun >$TRAINJOB_RUN_DIR/begun; sleep 2718.6"}]})
    until(lambda: run.word("begun"), "the step to begin")
    here.run("cancel", run.id)
    run.wait("CANCELLED")
    run.wait_until_nothing_is_left()
    assert not [pid for pid in every_process() if command_of(pid) == ["sleep", "2718.6"]]
    assert run.log(0) == ""


@pytest.mark.parametrize("where", ["job", "node"])
def test_the_time_limit_ends_the_step_that_runs(here: Here, where: str) -> None:
    run = submit(here, {where: [{"shell": "sleep 2718.7"}]}, "--time-limit", "0:03", "--follow", code=1)
    assert run.word("state") == "TIMEOUT"
    run.wait_until_nothing_is_left()


def test_a_request_for_a_checkpoint_that_comes_during_a_step_reaches_the_ranks(here: Here) -> None:
    here.write("my_script.py", WAITS)
    line = "echo begun >$TRAINJOB_RUN_DIR/begun; until [[ -e $TRAINJOB_RUN_DIR/release ]]; do sleep 0.05; done"
    run = submit(here, {"node": [{"shell": line}]})
    until(lambda: run.word("begun"), "the step to begin")
    os.kill(run.script, signal.SIGUSR1)
    until(lambda: "\tsignal\tUSR1" in run.word("events"), "the script to hear it")
    run.release()
    run.wait("STOPPED")  # asked, and ended before anybody knows that it is done
    assert "SIGUSR1" in run.log(0)


def test_plan_and_page_name_the_steps(here: Here) -> None:
    job = here.folder / "job.yaml"
    steps = {"job": [{"run": ["hf", "download", "org/model"], "timeout_s": 900}], "node": [{"shell": "cp -r /a /b"}]}
    job.write_text(json.dumps({"command": ["python", "my_script.py"], "once": steps}))
    plan = here.run("plan", "--job", str(job)).stdout
    assert "hf once for the run, within 15 min 0 s; shell on each host, within 1 h 0 min" in plan
    page = here.run("render", "--job", str(job)).stdout
    assert "# Once for the run, before ranks: hf download org/model\n" in page
    assert "# Once on each host, before ranks: bash -c 'cp -r /a /b'\n" in page
    assert [line for line in page.splitlines() if "once_for_job" in line and "hf" in line] == []
