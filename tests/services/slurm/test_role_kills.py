"""A part of a job with roles that is killed under a real Slurm at a drawn moment: the outcome is the stated one."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal

import pytest

from tests.support.local_runs import Here, Run, command_of, is_observer, parent_of
from tests.support.role_programs import SERVER, TRAINER, roles
from tests.support.slurm_jobs import LIMIT_S, POLL_S, Login, everything_printed
from tests.support.waiting import until
from trainjob.contract import clock
from trainjob.contract.paths import RunPaths
from trainjob.records import roles as role_records
from trainjob.rehearse.slurm.private import PrivateSlurm

pytestmark = [pytest.mark.timeout(900), pytest.mark.full]

NODES = {"count": 4, "accelerator": "cpu", "cpus": 4, "memory_gb": 2}
SEEDS = range(1, 21)


@pytest.fixture
def login(slurm: PrivateSlurm, here: Here) -> Login:
    here.write("server.py", SERVER)
    here.write("trainer.py", TRAINER)
    return Login(here, slurm, nodes=NODES, directives={"mem": "100M"})


def begun(login: Login, **server: int) -> tuple[Run, str]:
    """Return a run whose trainer has begun, and its job."""
    file = login.here.folder / "job.yaml"
    file.write_text(json.dumps({"roles": roles(**server)}))
    run, job = login.submit("--job", str(file), "--instances", "1")
    until(lambda: "step 1" in run.log(0), "the trainer to begin", LIMIT_S, POLL_S)
    return run, job


def end(pids: list[int], number: signal.Signals, drawn: random.Random) -> None:
    clock.sleep(drawn.uniform(0, 2))
    with contextlib.suppress(ProcessLookupError):
        os.kill(drawn.choice(pids), number)


def fails(login: Login, run: Run, job: str) -> None:
    assert login.ended(run, job) == "FAILED", everything_printed(run)  # and nothing of it is left
    assert run.word("exit_code") == "137"


@pytest.mark.parametrize("seed", SEEDS)
def test_a_server_is_started_again_or_fails_the_job(login: Login, seed: int) -> None:
    drawn = random.Random(seed)
    restarts = drawn.choice((0, 1))
    run, job = begun(login, restarts=restarts)
    end(run.find("python", "server.py"), signal.SIGKILL, drawn)
    if not restarts:
        assert login.ended(run, job) == "FAILED", everything_printed(run)
        told = json.loads((run.folder / "failure.json").read_text())
        assert told["why"] == "role server ended with exit code 137, and train needs it"
        return
    server = RunPaths(run.folder).of_role("server")
    until(lambda: (now := role_records.read(server)) and (now.starts, now.state) == (2, "READY"), "a start", LIMIT_S)
    (run.folder / "finish").touch()
    assert login.ended(run, job) == "COMPLETED", everything_printed(run)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_trainer_fails_the_job_with_its_code(login: Login, seed: int) -> None:
    run, job = begun(login)
    end(run.find("python", "trainer.py"), signal.SIGKILL, random.Random(seed))
    fails(login, run, job)


def modules(run: Run, name: str) -> list[int]:
    """Return the run's processes that are one of our modules."""
    return [pid for pid in run.processes() if command_of(pid)[1:3] == ["-m", name] and not is_observer(pid)]


@pytest.mark.parametrize("seed", SEEDS)
def test_the_launcher_of_the_ranks_fails_the_job(login: Login, seed: int) -> None:
    """Killed is the launcher of a rank, or its guard: whatever of both the draw hits."""
    run, job = begun(login)
    (trainer,) = run.find("python", "trainer.py")
    launchers = modules(run, "trainjob.launch")
    above = [pid for pid in launchers if pid == parent_of(trainer) or pid == parent_of(parent_of(trainer))]
    end(above, signal.SIGKILL, random.Random(seed))
    fails(login, run, job)


@pytest.mark.parametrize("seed", SEEDS)
def test_what_watches_the_roles_fails_the_job(login: Login, seed: int) -> None:
    run, job = begun(login)
    end(modules(run, "trainjob.launch.roles"), signal.SIGKILL, random.Random(seed))
    fails(login, run, job)
