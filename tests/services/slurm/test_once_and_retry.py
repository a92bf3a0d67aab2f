"""Steps before ranks, and attempts that ask for more, under a real Slurm with several nodes."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from tests.support.local_runs import Here, Run
from tests.support.slurm_jobs import LIMIT_S, POLL_S, Login, everything_printed
from tests.support.waiting import until
from trainjob.contract.paths import RunPaths
from trainjob.observe.report.page import happenings
from trainjob.records import events
from trainjob.rehearse.slurm.private import PrivateSlurm

pytestmark = pytest.mark.timeout(900)

NODES = {"count": 2, "accelerator": "cpu", "cpus": 4, "memory_gb": 2}
# In its first attempt it asks to be started again.
AGAIN = """\
import os, pathlib
run = pathlib.Path(os.environ["TRAINJOB_RUN_DIR"])
print("ready", os.environ["TRAINJOB_ATTEMPT"], flush=True)
if os.environ["TRAINJOB_ATTEMPT"] == "1":
    (run / "requeue").write_text("1\\n")
    raise SystemExit(75)
"""
NEEDS_MEMORY = """\
import os, re, subprocess
shown = subprocess.run(["scontrol", "show", "job", "-o", os.environ["SLURM_JOB_ID"]], capture_output=True, text=True)
asked = int(re.search(r"MinMemoryNode=([0-9]+)M", shown.stdout)[1])
print("has", asked, flush=True)
if asked < 200:
    raise MemoryError
"""
# Longer than one minute, and less than two.
NEEDS_TIME = """\
import os, time
if os.environ["TRAINJOB_ATTEMPT"] == "1":
    time.sleep(600)
"""


@pytest.fixture
def login(slurm: PrivateSlurm, here: Here) -> Login:
    return Login(here, slurm, nodes=NODES, directives={"mem": "100M"})


def run(login: Login, script: str, job: dict[str, Any], *words: str) -> Run:
    """Return the run of a job that has left the queue, with all that followed it."""
    login.here.write("my_script.py", script)
    file = login.here.folder / "job.yaml"
    file.write_text(json.dumps({"command": [sys.executable, "my_script.py"], **job}))
    made = login.render("--job", str(file), *words)
    # A rehearsal would skip the steps.
    login.sbatch(made, TRAINJOB_PROLOGUE="runs")
    until(lambda: not login.queue(), "the queue to be empty", LIMIT_S, POLL_S)
    return made


def test_steps_of_the_job_run_on_one_node_once_and_those_of_nodes_on_each_at_every_attempt(login: Login) -> None:
    tell = "echo $TRAINJOB_ATTEMPT $SLURMD_NODENAME >>$TRAINJOB_RUN_DIR/%s; sleep 1"
    once = {"job": [{"shell": tell % "of-job"}], "node": [{"shell": tell % "of-nodes"}]}
    ended = run(login, AGAIN, {"once": once}, "--instances", "4", "--hosts", "2")
    assert (ended.word("state"), ended.word("attempt")) == ("COMPLETED", "2"), everything_printed(ended)
    assert [line.split()[0] for line in ended.word("of-job").splitlines()] == ["1"]
    by_node = sorted(ended.word("of-nodes").splitlines())
    nodes = {line.split()[1] for line in by_node}
    assert len(nodes) == 2
    assert by_node == sorted(f"{attempt} {node}" for attempt in (1, 2) for node in nodes)


@pytest.mark.parametrize("where", ["job", "node"])
def test_a_step_that_fails_ends_the_job_before_any_rank(login: Login, where: str) -> None:
    once = {where: [{"shell": "echo Connection refused >&2; exit 9", "name": "model"}]}
    ended = run(login, AGAIN, {"once": once}, "--instances", "4", "--hosts", "2")
    assert (ended.word("state"), ended.word("exit_code")) == ("FAILED", "9"), everything_printed(ended)
    assert ended.log(0) == ""
    failed = json.loads((ended.folder / "failure.json").read_text())
    assert (failed["step"], failed["tail"]) == (f"step model (once.{where})", ["Connection refused"])


@pytest.mark.parametrize("where", ["job", "node"])
def test_a_cancel_ends_the_step(login: Login, where: str) -> None:
    login.here.write("my_script.py", AGAIN)
    file = login.here.folder / "job.yaml"
    once = {where: [{"shell": "echo begun >$TRAINJOB_RUN_DIR/begun; sleep 2718"}]}
    file.write_text(json.dumps({"command": [sys.executable, "my_script.py"], "once": once}))
    made = login.render("--job", str(file), "--instances", "1")
    job = login.sbatch(made, TRAINJOB_PROLOGUE="runs")
    until(lambda: made.word("begun"), "the step to begin", LIMIT_S, POLL_S)
    login.slurm.run(["scancel", job])
    login.wait(job)
    assert made.word("state") == "CANCELLED", everything_printed(made)
    made.wait_until_nothing_is_left()


def test_an_attempt_without_memory_is_followed_by_one_with_more(login: Login) -> None:
    ended = run(login, NEEDS_MEMORY, {"retry": {"mem": "+50%", "attempts": 3}}, "--instances", "2", "--hosts", "2")
    assert (ended.word("state"), ended.word("attempt")) == ("COMPLETED", "3"), everything_printed(ended)
    # The first rank that fails ends the other, perhaps before it has said a word.
    has = {line for rank in (0, 1) for line in ended.log(rank).splitlines() if line.startswith("has")}
    assert has == {"has 100", "has 150", "has 225"}
    paths = RunPaths(ended.folder)
    assert [retry["option"] for retry in events.retries(events.read(paths))] == ["--mem=150M", "--mem=225M"]
    reported = [row.text for row in happenings(paths)]
    assert "ran out of memory: the next attempt asks for --mem=150M" in reported


def test_more_than_a_node_has_is_not_asked_for(login: Login) -> None:
    login.cluster("hpc", nodes=NODES, directives={"mem": "2G"})
    file = login.here.folder / "job.yaml"
    file.write_text(json.dumps({"command": ["true"], "retry": {"mem": "+50%"}}))
    output = login.here.run("render", "--cluster", "hpc", "--job", str(file), code=1).stderr
    assert "retry has mem, and the job has 2G of the 2048 MB already (mem): take mem out of retry" in output


def test_a_partition_that_has_no_more_is_named_at_the_end(login: Login) -> None:
    """The cluster file does not say how much memory a node has, and Slurm does."""
    nodes = {name: value for name, value in NODES.items() if name != "memory_gb"}
    login.cluster("hpc", nodes=nodes, directives={"mem": "150M"})
    ended = run(login, NEEDS_MEMORY, {"retry": {"mem": "+9000%"}}, "--instances", "1")
    assert (ended.word("state"), ended.word("attempt")) == ("FAILED", "1"), everything_printed(ended)
    output = (ended.folder / "logs/scheduler.out").read_text()
    assert "Slurm takes no job with --mem=13650M, which may be more than the partition's limit" in output


def test_an_attempt_that_its_time_limit_ended_is_followed_by_a_longer_one(login: Login) -> None:
    login.cluster("hpc", nodes=NODES, directives={"mem": "100M"}, time_limit_signal={"margin_s": 10})
    job = {"retry": {"time": "+100%"}, "time_limit": "00:01:00"}
    ended = run(login, NEEDS_TIME, job, "--instances", "1")
    assert (ended.word("state"), ended.word("attempt")) == ("COMPLETED", "2"), everything_printed(ended)
    assert [retry["option"] for retry in events.retries(events.read(RunPaths(ended.folder)))] == ["--time=00:02:00"]
    assert "asks for --time=00:02:00" in " ".join(row.text for row in happenings(RunPaths(ended.folder)))
