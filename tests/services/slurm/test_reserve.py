"""Reservations under a real Slurm: runs begin in them, and they end with their client, or when nobody uses them."""

from __future__ import annotations

import json
import shlex
import sys
from functools import partial
from pathlib import Path

import pytest

from tests.support.programs import TRAINJOB
from tests.support.slurm_jobs import POLL_S
from tests.support.slurm_site import Site
from tests.support.waiting import until
from trainjob.contract import states
from trainjob.contract.paths import RunPaths

pytestmark = pytest.mark.timeout(900)

ENDS = (sys.executable, "-c", "import os; print('in', os.environ['SLURM_JOB_ID'])")
STAYS = (sys.executable, "-c", "import time; time.sleep(600)")


@pytest.fixture
def gpus(cluster: Site, no_stand_ins: None) -> Site:
    """Return the cluster as one of GPUs, whose user may have ten GPU-hours in all."""
    nodes = {"count": 2, "cpus": 8, "accelerator": "gpu", "accelerators": 4}
    cluster.write_cluster("here", nodes=nodes, node_check=False)
    config = Path(cluster.environment["XDG_CONFIG_HOME"]) / "trainjob/config.yaml"
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text("budget: {gpu_hours: 10}\n")
    return cluster


def reserve(cluster: Site, *words: str) -> tuple[str, str]:
    """Return a new reservation of both nodes, and its job."""
    made = cluster.json("reserve", "here", "--instances", "8", "--for", "1h", *words)
    return made["id"], made["scheduler"]["job_id"]


def jobs(cluster: Site) -> list[str]:
    return cluster.run("squeue", "--noheader", "--format=%A").out.split()


def steps(cluster: Site, run: str) -> list[str]:
    listed = cluster.run("squeue", "--steps", "--noheader", "--format=%i %j").out.splitlines()
    return [line.split()[0] for line in listed if line.split()[1:] == [run]]


def left(cluster: Site) -> list[str]:
    """Return the runs that have not ended, or may not have."""
    return [one["id"] for one in cluster.json("list") if one["state"] in (*states.ACTIVE, states.LOST)]


def charged(cluster: Site) -> float:
    shown = cluster.json(
        "plan", "--cluster", "here", "--instances", "1", "--time-limit", "00:10:00", "--task", "digits-cnn"
    )
    return float(shown["cost"]["budgets"][0]["charged_hours"])


def test_runs_begin_in_it_and_cost_nothing_beside_it(gpus: Site) -> None:
    before = charged(gpus)
    run, job = reserve(gpus)
    assert charged(gpus) == before + 8
    for _ in range(2):
        inside = gpus.trainjob(
            "submit", "--cluster", "here", "--instances", "4", "--in", "last", "--again", "--follow", "--", *ENDS
        )
        assert inside.code == 0, inside.err
        assert inside.out.count(f"in {job}") == 4
    assert charged(gpus) == before + 8
    listed = {one["id"]: one["state"] for one in gpus.json("list")}
    assert listed[run] == "RUNNING"
    assert "CANCELLED" in gpus.trainjob("cancel", run).out
    assert jobs(gpus) == []
    assert charged(gpus) < before + 1
    refused = gpus.trainjob("submit", "--cluster", "here", "--in", "last", "--", *ENDS)
    assert (refused.code, "no reservation on cluster here is left" in refused.err) == (1, True), refused.err


def test_what_a_budget_does_not_hold_is_not_reserved(gpus: Site) -> None:
    refused = gpus.trainjob("reserve", "here", "--instances", "8", "--for", "2h")
    assert refused.code == 1
    assert "may cost 16.00 GPU-hours" in refused.err
    assert jobs(gpus) == []


def test_it_ends_when_idle_after_a_warning(gpus: Site) -> None:
    run, job = reserve(gpus, "--idle", "0.3")  # 18 s, warned 9 s before
    busy = gpus.submit("here", "--instances", "1", "--in", "last", "--", *STAYS)
    until(lambda: len(steps(gpus, busy)) == 2, "its steps", poll_s=POLL_S)
    assert not gpus.json("status", run)["note"]
    gpus.trainjob("cancel", busy)
    until(lambda: "unless a run begins in it" in str(gpus.json("status", run)["note"]), "the warning", poll_s=0.5)
    assert jobs(gpus) == [job]
    gpus.wait(run, "COMPLETED")
    assert "its nodes are released" in gpus.json("status", run)["note"]
    until(lambda: jobs(gpus) == [], "its end", poll_s=POLL_S)


def killed(cluster: Site, when: str, *words: str) -> None:
    """Kill a client that reserves, by KILL, which no program can answer, once the shell condition `when` holds."""
    client = shlex.join([TRAINJOB, "reserve", "here", "--instances", "8", "--for", "1h", *words])
    cluster.run("bash", "-c", f"{client} & client=$!; until {when}; do sleep 0.02; done; kill -KILL $client; wait")


@pytest.mark.parametrize("kills", [2, pytest.param(20, marks=pytest.mark.full)])
def test_a_killed_client_leaves_no_step_and_no_allocation(gpus: Site, kills: int) -> None:
    before = charged(gpus)
    gpus.runs.mkdir(parents=True, exist_ok=True)
    for number in range(kills):
        # At any moment from its run directory on.
        made = f"[ -n \"$(find {gpus.runs} -maxdepth 1 -name '*-reservation' -newer begun)\" ]"
        gpus.run("touch", "begun")
        killed(gpus, f"{made} && sleep {0.04 * (number % 20)}")
        until(lambda: jobs(gpus) == [] and not left(gpus), "nothing to be left", poll_s=0.2)
    assert charged(gpus) < before + 1


def test_a_killed_client_that_holds_it_ends_the_run_in_it(gpus: Site) -> None:
    held = f"[ $({shlex.join(['squeue', '--noheader', '--states=running', '--format=%A'])} | wc -l) = 1 ]"
    submit = shlex.join(
        [TRAINJOB, "submit", "--cluster", "here", "--instances", "4", "--in", "last", "--json", "--", *STAYS]
    )
    begun = f"{held} && {submit} >run.json"
    killed(gpus, begun, "--hold")
    run = json.loads((gpus.here / "run.json").read_text())["id"]
    until(lambda: jobs(gpus) == [], "no job", poll_s=POLL_S)
    until(partial(seen_ended, gpus, run), "the run's end", poll_s=0.5)
    assert steps(gpus, run) == []
    assert RunPaths(gpus.runs / run).folder.is_dir()


def seen_ended(cluster: Site, run: str) -> bool:
    return cluster.state(run) in ("CANCELLED", "LOST")


def test_over_ssh_it_is_the_same(gpus: Site) -> None:
    gpus.write_cluster("far", ssh=True, nodes={"count": 2, "cpus": 8})
    made = gpus.json("reserve", "far", "--instances", "2", "--for", "1h", "--idle", "0.3")
    inside = gpus.trainjob("submit", "--cluster", "far", "--in", "last", "--no-check", "--follow", "--", *ENDS)
    assert inside.code == 0, inside.err
    assert f"in {made['scheduler']['job_id']}" in inside.out
    until(lambda: "unless a run begins in it" in str(gpus.json("status", made["id"])["note"]), "the warning")
    until(lambda: gpus.state(made["id"]) == "COMPLETED", "its end", poll_s=0.5)
    assert jobs(gpus) == []
