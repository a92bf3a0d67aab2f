"""A real controller that is killed within a second of a job's start, and a daemon that dies under a job's step."""

from __future__ import annotations

import pytest

from tests.support.slurm_site import Site
from tests.support.waiting import until
from trainjob.rehearse.slurm import configuration

pytestmark = [pytest.mark.timeout(600), pytest.mark.usefixtures("no_stand_ins")]


def restart_controller(cluster: Site) -> None:
    pid_file = cluster.slurm.folder / configuration.PRIVATE / "slurmctld.pid"
    program = f"kill -KILL $(cat {pid_file}); sleep 3; PATH=$PATH:/usr/sbin:/sbin slurmctld"
    cluster.slurm.run_as_root(["sh", "-c", program])


@pytest.mark.full
def test_a_controller_that_is_killed_as_the_job_begins_starts_it_again_and_fails_nothing(cluster: Site) -> None:
    run = cluster.submit("here", "--instances", "2", "--", "sleep", "2")
    until((cluster.runs / run / "attempt").exists, "the first attempt")
    restart_controller(cluster)
    seen = set()

    def has_ended() -> bool:
        seen.add(cluster.state(run))
        return "COMPLETED" in seen

    until(has_ended, "the run COMPLETED", 300)
    assert seen <= {"PENDING", "REQUEUED", "RUNNING", "COMPLETED"}
    assert not cluster.run("squeue", "--noheader").out.strip()
    assert "drain" not in cluster.run("sinfo", "--noheader", "--format=%T").out


@pytest.mark.full
def test_a_job_whose_step_has_lost_its_daemon_ends_when_its_ranks_have(cluster: Site) -> None:
    run = cluster.submit("here", "--instances", "2", "--", "sleep", "12")
    cluster.wait(run, "RUNNING")
    until(lambda: "rank 1" in cluster.trainjob("logs", run, "--rank", "1").out, "its ranks")
    cluster.slurm.run_as_root(["pkill", "-KILL", "-f", r"slurmstepd: \[[0-9]*\.0\]"])
    note = "all ranks have ended but srun is still running; the job script stops waiting within a minute"
    until(lambda: cluster.json("status", run)["note"] == note, "what status says")
    cluster.wait(run, "COMPLETED")
