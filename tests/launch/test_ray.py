"""A job that drives a real Ray cluster of one node, this machine: its end, and what is left."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.local_runs import Here, Run, kill
from tests.support.role_programs import DRIVER, ray_job
from tests.support.waiting import until

pytestmark = pytest.mark.timeout(500)


@pytest.fixture
def ray_python(needs: Callable[[str], Path]) -> str:
    return str(needs("ray"))


def submitted(here: Here, python: str, command: list[str] | None = None) -> Run:
    here.write("driver.py", DRIVER)
    job = ray_job(python, 1, **({"command": command} if command else {}))
    file = here.folder / "job.yaml"
    file.write_text(json.dumps(job))
    return here.submit(flags=("--job", str(file)), instances=1)


def at_work(run: Run) -> None:
    until(lambda: "step 3" in run.log(0), "the driver to train", 250)


def nothing_is_left(run: Run) -> None:
    run.wait_until_nothing_is_left()
    started = re.search(r"/tmp/ray-[^/]+", run.log(0))
    assert started is None or not Path(started[0]).exists()


def test_the_driver_starts_when_ray_is_up_and_ends_it(here: Here, ray_python: str) -> None:
    run = submitted(here, ray_python)
    at_work(run)
    log = run.log(0)
    assert log.index("Ray has all of its 1 nodes") < log.index("alive 1 CPUs")
    assert "threads None" in log
    (run.folder / "finish").touch()
    run.wait("COMPLETED")
    nothing_is_left(run)


@pytest.mark.full
def test_the_driver_s_code_is_the_role_s(here: Here, ray_python: str) -> None:
    run = submitted(here, ray_python, [ray_python, "-c", "exit(7)"])
    run.wait("FAILED")
    nothing_is_left(run)
    assert run.word("exit_code") == "7"


def test_without_ray_the_job_says_where_it_is_missing(here: Here) -> None:
    run = submitted(here, sys.executable, [sys.executable, "-c", "pass"])
    run.wait("FAILED")
    assert "Ray can't run on this node: no Python of the job has it" in run.log(0)


@pytest.mark.full
@pytest.mark.parametrize("which", ["raylet", "gcs_server"])
def test_a_part_of_ray_that_is_killed_fails_the_job(here: Here, ray_python: str, which: str) -> None:
    run = submitted(here, ray_python)
    at_work(run)
    kill([pid for pid in run.processes() if name_of(pid) == which])
    run.wait("FAILED")
    nothing_is_left(run)
    assert list((run.folder / "ray" / "node-0000").glob("raylet*"))


@pytest.mark.full
def test_a_driver_that_is_asked_saves_while_ray_lives(here: Here, ray_python: str) -> None:
    run = submitted(here, ray_python)
    at_work(run)
    os.kill(run.script, signal.SIGUSR1)
    run.wait("STOPPED")
    nothing_is_left(run)
    assert int(run.word("checkpoint.pt")) >= 3


@pytest.mark.full
def test_a_cancelled_driver_saves_while_ray_lives(here: Here, ray_python: str) -> None:
    run = submitted(here, ray_python)
    at_work(run)
    here.run("cancel", run.id)
    run.wait("CANCELLED")
    nothing_is_left(run)
    assert int(run.word("checkpoint.pt")) >= 3


def name_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""
