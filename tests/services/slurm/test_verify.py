"""`trainjob verify --resume --cluster`: jobs on a private Slurm are interrupted, resumed and compared."""

from __future__ import annotations

import shlex
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.support.printed_json import reported
from tests.support.programs import TRAINJOB
from tests.support.slurm_jobs import POLL_S
from tests.support.slurm_site import WAIT_S, Site
from tests.support.waiting import until

pytestmark = [pytest.mark.timeout(900), pytest.mark.usefixtures("no_stand_ins")]

PLAIN = (Path(__file__).parents[3] / "benchmarks" / "resume_scripts" / "plain.py").read_text()


def verify(cluster: Site, *words: str, where: str = "here", code: int = 0) -> Any:
    (cluster.here / "plain.py").write_text(PLAIN)
    asked = ("--resume", "--cluster", where, "--json", "--time-limit", "00:05:00")
    ended = cluster.trainjob("verify", *asked, *words, timeout_s=800)
    assert ended.code == code, ended.out + ended.err
    return reported(ended.out)


def script(*words: str) -> tuple[str, ...]:
    return ("--", sys.executable, "plain.py", "--epochs", "2", *words)


def plan(cluster: Site, where: str) -> Any:
    return reported(cluster.trainjob("plan", "--cluster", where, "--json", *script()).out)


def jobs_left(cluster: Site) -> list[str]:
    return cluster.run("squeue", "--noheader").out.splitlines()


def test_a_script_that_resumes_is_proved_on_the_cluster(cluster: Site) -> None:
    verdict = verify(cluster, "--budget", "2node-hours", *script())
    assert verdict["equal"], verdict
    ways = [(one["way"], one["moment"], one["state"]) for one in verdict["interruptions"]]
    # It ends as asked, and Slurm starts it again; the job of the killed one has ended.
    assert ways[0] == ("time-limit", "update", "REQUEUED")
    assert [way for way, _, _ in ways] == ["time-limit", "kill", "preemption"]
    assert all(one["continued_at"] is not None for one in verdict["interruptions"])
    assert verdict["files"] == ["checkpoints/last.pt"]
    assert jobs_left(cluster) == []
    # The other cluster has no proof of its own.
    for name, shown in (("here", True), ("far", False)):
        assert ("resume_proof" in plan(cluster, name)) == shown
    said = cluster.trainjob("plan", "--cluster", "here", *script()).out
    assert "on cluster here by 3 interruptions" in said
    submitted = cluster.trainjob("submit", "--cluster", "here", *script())
    assert "resume proved on" in submitted.err
    (cluster.here / "plain.py").write_text(PLAIN + "\n")
    assert plan(cluster, "here")["resume_proof"]["changed"] == ["plain.py"]


def test_what_a_script_loses_on_a_cluster_behind_ssh_is_named(cluster: Site) -> None:
    words = ("--stops", "kill@update:8", *script("--fault", "rng"))
    verdict = verify(cluster, *words, where="far", code=1)
    assert [one["code"] for one in verdict["findings"]] == ["rng"]
    assert plan(cluster, "far")["resume_proof"]["proof"]["codes"] == ["rng"]
    assert jobs_left(cluster) == []


def test_what_may_cost_more_than_the_budget_is_refused(cluster: Site) -> None:
    (cluster.here / "plain.py").write_text(PLAIN)
    words = ("verify", "--resume", "--cluster", "here", "--time-limit", "01:00:00", "--budget", "1node-hours")
    ended = cluster.trainjob(*words, *script())
    assert ended.code == 1
    assert "7 attempts on 1 node, each of at most 01:00:00, may cost 7.00 node-hours" in ended.err
    assert jobs_left(cluster) == []


@pytest.mark.parametrize("where", ["here", "far"])
def test_no_job_outlives_a_command_that_is_killed(cluster: Site, where: str) -> None:
    (cluster.here / "plain.py").write_text(PLAIN)
    words = [TRAINJOB, "verify", "--resume", "--cluster", where, *script("--epochs", "100000")]
    recorded = set(cluster.runs.glob("experiments/*/*/updates/*"))
    with ThreadPoolExecutor() as pool:
        pool.submit(cluster.run, "sh", "-c", f"{shlex.join(words)} & echo $! >pid; wait")
        until(lambda: {*cluster.runs.glob("experiments/*/*/updates/*")} - recorded, "its job to train", WAIT_S, POLL_S)
        cluster.run("kill", "-9", (cluster.here / "pid").read_text().strip())
        until(lambda: not jobs_left(cluster), "its job to be cancelled", WAIT_S, POLL_S)
