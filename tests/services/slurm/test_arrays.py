"""Arrays, sweeps and chains on a real Slurm, on its login node and over ssh: each task a run of its own."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.support.local_runs import TELL
from tests.support.slurm_site import WAIT_S, Site
from tests.support.waiting import until
from trainjob.rehearse.slurm import faults

pytestmark = [pytest.mark.timeout(600), pytest.mark.usefixtures("no_stand_ins")]
# Over ssh is what differs most; on the login node takes as long again.
PLACES = ("far", pytest.param("here", marks=pytest.mark.full))
HOSTILE = [
    *("$(touch ran)", "`x`", "it's", '"', "a, b;c", "", "*", "~", "line\nbreak", "ä→", "--instances=9", "!x", "\\"),
    "x" * 8192,
]
# Task 1 stays until it is told to go; in every other task the ranks end at once.
STAY = '[ "$SLURM_ARRAY_TASK_ID" != 1 ] || [ "$TRAINJOB_ATTEMPT" != 1 ] || sleep 600'


def sweep(cluster: Site, *items: dict[str, Any]) -> None:
    (cluster.here / "sweep.yaml").write_text(json.dumps(items))


def states(cluster: Site, run: str) -> list[str]:
    return [task["state"] for task in cluster.json("status", run)["tasks"]]


@pytest.mark.parametrize("place", PLACES)
def test_each_task_gets_its_own_values_to_the_byte(cluster: Site, place: str) -> None:
    (cluster.here / "tell.py").write_text(TELL)
    values = {f"V{number}": text for number, text in enumerate(HOSTILE)}
    sweep(cluster, {"arguments": HOSTILE}, {"env": values}, {"arguments": ["last"], "env": {"SHARED": "mine"}})
    asked = ("--instances", "2", "--sweep", "sweep.yaml", "--env", "SHARED=all", "--", "python", "tell.py", "first")
    run = cluster.submit(place, *asked)
    cluster.wait(run, "COMPLETED")
    reported = [[_reported(cluster, f"{run}:{task}", rank) for rank in (0, 1)] for task in (0, 1, 2)]
    assert [one["arguments"] for one in reported[0]] == [["first", *HOSTILE]] * 2
    assert [{name: one["environ"][name] for name in values} for one in reported[1]] == [values] * 2
    assert [one["environ"]["SHARED"] for ranks in reported for one in ranks] == ["all"] * 4 + ["mine"] * 2
    assert [one["environ"]["TRAINJOB_RUN_DIR"].rpartition("/")[2] for ranks in reported for one in ranks] == list(
        "001122"
    )
    assert not list(cluster.folder.rglob("ran"))


def _reported(cluster: Site, task: str, rank: int) -> dict[str, Any]:
    lines = cluster.json("logs", task, "--rank", str(rank))["lines"]
    value: dict[str, Any] = json.loads(next(line for line in lines if line.startswith("{")))
    return value


def test_tasks_train_with_settings_of_their_own(cluster: Site) -> None:
    sweep(cluster, {"learning_rate": 0.5}, {"set": {"width": 8}}, {"seed": 3, "updates": 2})
    asked = ("--instances", "1", "--updates", "3", "--log-every", "1", "--sweep", "sweep.yaml", "--array", "0-2%2")
    run = cluster.submit("far", *asked)
    cluster.wait(run, "COMPLETED")
    tasks = cluster.json("report", run)["tasks"]
    assert [task["own"] for task in tasks] == [{"learning_rate": 0.5}, {"set.width": 8}, {"seed": 3, "updates": 2}]
    assert [task["updates"] for task in tasks] == [3, 3, 2]
    assert len({task["loss"] for task in tasks}) == 3
    shown = cluster.trainjob("report", run).out
    assert re.search(rf"{run}:1 +COMPLETED +3 .* set.width 8\n", shown)
    weights = cluster.here / "task.safetensors"
    assert cluster.trainjob("export", f"{run}:1", "-o", str(weights)).code == 0
    assert weights.stat().st_size > 1000
    refused = cluster.trainjob("export", run, "-o", str(weights))
    assert f"run {run} is an array with elements 0-2. Name one of them, as in trainjob export {run}:0" in refused.err


@pytest.mark.parametrize("place", PLACES)
def test_one_task_is_cancelled_and_resumed_and_the_others_go_on(cluster: Site, place: str) -> None:
    run = cluster.submit(place, "--instances", "1", "--array", "0-3%2", "--", "sh", "-c", STAY)
    until(lambda: states(cluster, run) == ["COMPLETED", "RUNNING", "COMPLETED", "COMPLETED"], "all but task 1", WAIT_S)
    found = cluster.json("status", run)
    assert (found["state"], found["note"]) == ("RUNNING", "3 of 4 elements COMPLETED, 1 RUNNING")
    assert cluster.json("cancel", f"{run}:1")["state"] == "CANCELLED"
    assert cluster.json("status", run)["note"] == "3 of 4 elements COMPLETED, 1 CANCELLED"
    assert cluster.trainjob("resume", run).code == 0
    until(lambda: states(cluster, run) == ["COMPLETED"] * 4, "task 1 in its second attempt", WAIT_S)
    assert [task["attempt"] for task in cluster.json("status", run)["tasks"]] == [1, 2, 1, 1]
    assert "is COMPLETED, so there is nothing left to resume" in cluster.trainjob("resume", f"{run}:1").err


def test_a_task_that_waits_is_cancelled_alone_and_the_whole_is_one_scheduler_call(cluster: Site) -> None:
    run = cluster.submit("far", "--instances", "1", "--array", "0-5%1", "--", "sleep", "600")
    until(lambda: "RUNNING" in states(cluster, run), "the first task")
    says = "waits for earlier elements of its array (JobArrayTaskLimit)"
    until(lambda: cluster.json("status", run)["tasks"][1]["note"] == says, "why the second one waits")
    assert cluster.json("cancel", f"{run}:3")["state"] == "CANCELLED"
    cluster.record("squeue")
    found = cluster.json("status", run)
    assert len(cluster.calls("squeue")) == 1
    assert [task["state"] for task in found["tasks"]] == [
        "RUNNING",
        "PENDING",
        "PENDING",
        "CANCELLED",
        *["PENDING"] * 2,
    ]
    listed = next(one for one in cluster.json("list") if one["id"] == run)
    assert (listed["state"], listed["note"]) == ("RUNNING", "1 of 6 elements RUNNING, 4 PENDING, 1 CANCELLED")
    assert cluster.json("cancel", run)["state"] == "CANCELLED"
    assert states(cluster, run) == ["CANCELLED"] * 6
    assert cluster.run("squeue", "--noheader").out == ""


def test_a_failing_task_is_distinguished_from_the_others(cluster: Site) -> None:
    fails = 'exit "$SLURM_ARRAY_TASK_ID"'
    asked = ("--instances", "1", "--array", "0,3", "--again", "--follow", "--", "sh", "-c", fails)
    ended = cluster.trainjob("submit", "--cluster", "here", *asked)
    assert (ended.code, "1 of 2 elements COMPLETED, 1 FAILED" in ended.out) == (1, True), ended.err
    run = re.findall(r"submitted run (\S+):", ended.out)[0]
    assert re.search(r"sh.*:3 +FAILED", cluster.trainjob("status", run).out)
    failed = cluster.json("status", f"{run}:3")
    assert (failed["state"], failed["exit_code"], failed["failure"]["rank"]) == ("FAILED", 3, 0)
    assert f"run {run} has no element 1: it has 0,3" in cluster.trainjob("status", f"{run}:1").err


def test_more_tasks_than_the_site_takes_are_refused_before_submission(cluster: Site) -> None:
    ended = cluster.trainjob("submit", "--cluster", "far", "--instances", "1", "--array", "0-1001", "--", "true")
    assert ended.code == 1
    assert "--array 0-1001 has element 1001, and login's Slurm takes elements up to 1000" in ended.err


@pytest.mark.parametrize("place", PLACES)
def test_a_chain_waits_until_its_runs_are_complete(cluster: Site, place: str) -> None:
    go = cluster.folder / f"go-{place}"
    waits = f"until [ -e {go} ]; do sleep 0.2; done"
    one = cluster.submit(place, "--instances", "1", "--name", "one", "--", "sh", "-c", waits)
    two = cluster.submit(place, "--instances", "1", "--name", "two", "--array", "0-1", "--", "sh", "-c", waits)
    last = cluster.submit(place, "--instances", "1", "--after", one, "--after", two, "--", "true")
    says = f"waits for runs {one}, {two} to be COMPLETED (Dependency)"
    until(lambda: cluster.json("status", last)["note"] == says, "what it waits for")
    assert cluster.state(last) == "PENDING"
    go.touch()
    cluster.wait(last, "COMPLETED")
    assert [cluster.state(run) for run in (one, two)] == ["COMPLETED"] * 2
    after = cluster.submit(place, "--instances", "1", "--after", one, "--", "true")
    cluster.wait(after, "COMPLETED")


def test_a_chain_goes_on_behind_a_requeue_and_never_behind_a_failure(cluster: Site) -> None:
    leaves = '[ "$TRAINJOB_ATTEMPT" != 1 ] || { sleep 3; echo 5 >"$TRAINJOB_RUN_DIR/requeue"; }'
    first = cluster.submit("far", "--instances", "1", "--name", "first", "--", "sh", "-c", leaves)
    second = cluster.submit("far", "--instances", "1", "--after", first, "--name", "second", "--", "false")
    third = cluster.submit("far", "--instances", "1", "--after", second, "--name", "third", "--", "true")
    job = until(lambda: _requeued(cluster, first), "the requeue")
    assert cluster.state(second) == "PENDING"
    faults.start_soon(cluster.slurm, job)
    cluster.wait(second, "FAILED")
    assert cluster.json("status", first)["attempt"] == 2
    says = f"waits forever, because run {second} did not become COMPLETED: cancel it (DependencyNeverSatisfied)"
    until(lambda: cluster.json("status", third)["note"] == says, "that it waits for ever")
    refused = cluster.trainjob("submit", "--cluster", "far", "--after", second, "--again", "--", "true")
    assert f"--after {second}: it is FAILED, and a run that waits for it would never start" in refused.err
    assert cluster.json("cancel", third)["state"] == "CANCELLED"


def _requeued(cluster: Site, run: str) -> str | None:
    """Return the job's id once it waits for its second attempt."""
    words = cluster.run("squeue", "--noheader", f"--name={run}", "--format=%A %T %r").out.split()
    return words[0] if words[1:] == ["PENDING", "BeginTime"] else None


def test_what_cannot_be_waited_for_is_refused(cluster: Site) -> None:
    other = cluster.submit("here", "--instances", "1", "--", "sleep", "600")
    ended = cluster.trainjob("submit", "--cluster", "far", "--after", other, "--", "true")
    assert f"--after {other}: it runs on cluster here, and the scheduler of far does not know it" in ended.err
    ended = cluster.trainjob("submit", "--cluster", "local", "--after", other, "--", "true")
    assert "--after needs a scheduler that holds the run back, and cluster local has none" in ended.err
    cluster.json("cancel", other)
