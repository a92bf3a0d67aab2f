"""A role of a job that is killed at a drawn moment: the outcome is the stated one, and no process is left."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.local_runs import Here, Run, command_of
from tests.support.role_programs import DRIVER, SERVER, TRAINER, ray_job, roles
from tests.support.waiting import until
from trainjob.contract import clock
from trainjob.contract.paths import RunPaths
from trainjob.records import roles as role_records

pytestmark = pytest.mark.timeout(300)

QUICK = [1]
ALL = [*QUICK, *(pytest.param(seed, marks=pytest.mark.full) for seed in range(2, 21))]
KILLS = (signal.SIGKILL, signal.SIGTERM)


def submitted(here: Here, job: dict[str, object]) -> Run:
    for name, text in {"server.py": SERVER, "trainer.py": TRAINER, "driver.py": DRIVER}.items():
        here.write(name, text)
    file = here.folder / "job.yaml"
    file.write_text(json.dumps(job))
    return here.submit(flags=("--job", str(file)), instances=1)


def end_by(number: signal.Signals, find: Callable[[], list[int]], drawn: random.Random) -> None:
    """Send the signal to a process at a drawn moment of its first seconds."""
    (pid, *_) = until(find, "the process to start", 120)
    clock.sleep(drawn.uniform(0, 2))
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def cause(run: Run) -> str:
    run.wait("FAILED")
    run.wait_until_nothing_is_left()
    return str(run.status()["cause"]["text"])


@pytest.mark.parametrize("seed", ALL)
def test_a_server_that_is_killed_is_started_again_or_fails_the_job(here: Here, seed: int) -> None:
    drawn = random.Random(seed)
    restarts, number = drawn.choice((0, 1)), drawn.choice(KILLS)
    run = submitted(here, {"roles": roles(restarts=restarts)})
    # The trainer asks its server once, as it begins, and a refusal would be its own end.
    log = run.folder / "logs" / "rank-0000.log"
    until(lambda: log.exists() and "step" in log.read_text(), "the trainer to begin", 120)
    end_by(number, lambda: run.find("python", "server.py"), drawn)
    if not restarts:
        assert f"role server ended with exit code {128 + number}, and train needs it" in cause(run)
        return
    server = RunPaths(run.folder).of_role("server")
    until(lambda: (now := role_records.read(server)) and (now.starts, now.state) == (2, "READY"), "another start")
    (run.folder / "finish").touch()
    run.wait("COMPLETED")
    run.wait_until_nothing_is_left()


@pytest.mark.parametrize("seed", ALL)
def test_a_trainer_that_is_killed_fails_the_job_with_its_code(here: Here, seed: int) -> None:
    run = submitted(here, {"roles": roles()})
    end_by(signal.SIGKILL, lambda: run.find("python", "trainer.py"), random.Random(seed))
    assert "was killed by signal 9" in cause(run)
    assert run.word("exit_code") == "137"


@pytest.mark.full
@pytest.mark.parametrize("seed", range(1, 21))
def test_any_part_of_ray_that_is_killed_fails_the_job(here: Here, needs: Callable[[str], Path], seed: int) -> None:
    drawn, python = random.Random(seed), str(needs("ray"))
    run = submitted(here, ray_job(python, 1))
    name = drawn.choice(("raylet", "gcs_server", "driver.py"))

    def find(part: str) -> list[int]:
        return [pid for pid in run.processes() if any(os.path.basename(word) == part for word in command_of(pid)[:2])]

    # A part that is lost while Ray starts is started again: the driver begins once Ray is up.
    until(lambda: find("driver.py"), "the driver to start", 120)
    end_by(signal.SIGKILL, lambda: find(name), drawn)
    expected = "was killed by signal 9" if name == "driver.py" else "Ray ended on this node"
    assert expected in cause(run)
