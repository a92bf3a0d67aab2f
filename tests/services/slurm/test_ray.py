"""A job that drives a real Ray cluster of four nodes under a real Slurm: its start, a lost node, and its end."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.local_runs import Here, Run, command_of, kill
from tests.support.role_programs import DRIVER, ray_job
from tests.support.slurm_jobs import LIMIT_S, POLL_S, Login, everything_printed
from tests.support.waiting import until
from trainjob.rehearse.slurm.private import PrivateSlurm

pytestmark = pytest.mark.timeout(900)

NODES = {"count": 4, "accelerator": "cpu", "cpus": 2, "memory_gb": 4}


@pytest.fixture
def login(slurm: PrivateSlurm, here: Here) -> Login:
    here.write("driver.py", DRIVER)
    return Login(here, slurm, nodes=NODES, directives={"mem": "100M"})


@pytest.fixture
def at_work(login: Login, needs: Callable[[str], Path]) -> tuple[Run, str]:
    file = login.here.folder / "job.yaml"
    file.write_text(json.dumps(ray_job(str(needs("ray")), 4, hosts=4, instances=4)))
    run, job = login.submit("--job", str(file))
    until(lambda: "step 3" in run.log(0) or not login.queue(), "the driver to train", LIMIT_S, POLL_S)
    assert "step 3" in run.log(0), everything_printed(run)
    return run, job


def test_all_four_nodes_are_in_before_the_driver_and_a_cancel_leaves_nothing(
    login: Login, at_work: tuple[Run, str]
) -> None:
    run, job = at_work
    log = run.log(0)
    took = re.search(r"Ray has all of its 4 nodes after ([0-9.]+) s", log)
    assert took is not None
    print(f"up after {took[1]} s")
    assert took.start() < log.index("alive 4 CPUs 8.0") < log.index("worked on 4")
    login.slurm.run(["scancel", job])
    assert login.ended(run, job) == "CANCELLED", everything_printed(run)


def test_a_node_of_ray_that_is_lost_fails_the_job(login: Login, at_work: tuple[Run, str]) -> None:
    run, job = at_work
    raylets = [pid for pid in run.processes() if Path(command_of(pid)[0]).name == "raylet"]
    assert len(raylets) == 4
    kill([next(pid for pid in raylets if "--head" not in command_of(pid))])
    assert login.ended(run, job) == "FAILED", everything_printed(run)


@pytest.mark.full
def test_a_requeue_has_the_driver_save_and_continue_on_a_new_cluster(login: Login, at_work: tuple[Run, str]) -> None:
    run, job = at_work
    login.saves_and_goes_on(run, job)
