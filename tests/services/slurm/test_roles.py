"""Jobs of several roles under a real Slurm: a server on the last node, and a trainer that needs it."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from tests.support.local_runs import Here, Run, kill
from tests.support.role_programs import READY_AT_LAST, SERVER, TRAINER, roles
from tests.support.slurm_jobs import LIMIT_S, POLL_S, Login, everything_printed
from tests.support.waiting import until
from trainjob.contract.paths import RunPaths
from trainjob.records import roles as role_records
from trainjob.rehearse.slurm.private import PrivateSlurm

pytestmark = pytest.mark.timeout(900)

NODES = {"count": 4, "accelerator": "cpu", "cpus": 4, "memory_gb": 2}


@pytest.fixture
def login(slurm: PrivateSlurm, here: Here) -> Login:
    here.write("server.py", SERVER)
    here.write("trainer.py", TRAINER)
    return Login(here, slurm, nodes=NODES, directives={"mem": "100M"})


def submitted(login: Login, *words: str, **server: Any) -> tuple[Run, str]:
    file = login.here.folder / "job.yaml"
    file.write_text(json.dumps({"roles": roles(**server)}))
    return login.submit("--job", str(file), *words)


def at_work(run: Run) -> None:
    until(lambda: "step 3" in run.log(0), "the trainer to train", LIMIT_S, POLL_S)


def server_of(run: Run) -> role_records.RoleRecord | None:
    return role_records.read(RunPaths(run.folder).of_role("server"))


def test_the_server_is_up_on_the_last_node_before_the_trainer_starts(login: Login) -> None:
    began = time.monotonic()
    run, job = submitted(login, "--hosts", "2", "--instances", "2")
    at_work(run)
    print(f"up after {time.monotonic() - began:.1f} s")
    steps = login.slurm.run(["squeue", "--steps", "--noheader", f"--jobs={job}", "--format=%j %N"]).text.split("\n")
    nodes = login.slurm.run(["squeue", "--noheader", f"--jobs={job}", "--format=%N"]).text.strip()
    hosts = login.slurm.run(["scontrol", "show", "hostnames", nodes]).text.split()
    assert f"server {hosts[-1]}" in [step.strip() for step in steps], steps
    (run.folder / "finish").touch()
    assert login.ended(run, job) == "COMPLETED", everything_printed(run)
    server = server_of(run)
    assert server is not None
    assert (server.state, server.starts) == ("ENDED", 1)
    assert [line for rank in (0, 1) for line in run.log(rank).splitlines() if line == "200"] == ["200"] * 2


def test_a_server_that_is_killed_fails_the_job(login: Login) -> None:
    run, job = submitted(login, "--instances", "2")
    at_work(run)
    (server,) = run.find("python", "server.py")
    kill([server])
    assert login.ended(run, job) == "FAILED", everything_printed(run)
    failed = json.loads((run.folder / "failure.json").read_text())
    assert failed["why"] == "role server ended with exit code 137, and train needs it"
    assert int(run.word("checkpoint.pt")) >= 3  # the trainer was told to end, and had the time to save


def test_a_server_that_may_restart_serves_at_the_same_address_again(login: Login) -> None:
    run, job = submitted(login, "--instances", "2", restarts=1)
    at_work(run)
    before = server_of(run)
    (server,) = run.find("python", "server.py")
    kill([server])
    until(lambda: (now := server_of(run)) and now.starts == 2 and now.state == "READY", "another start", LIMIT_S)
    after = server_of(run)
    assert before is not None
    assert after is not None
    assert before.address == after.address
    (run.folder / "finish").touch()
    assert login.ended(run, job) == "COMPLETED", everything_printed(run)


def test_a_server_that_is_not_ready_in_time_is_started_again_where_it_may_be(login: Login) -> None:
    login.here.write("server.py", READY_AT_LAST)
    login.here.write("trainer.py", "print('trained')")
    run, job = submitted(login, "--instances", "2", ready="file:up", ready_timeout_s=5, restarts=1)
    assert login.ended(run, job) == "COMPLETED", everything_printed(run)
    server = server_of(run)
    assert server is not None
    assert server.starts == 2


def test_a_cancel_leaves_no_process(login: Login) -> None:
    run, job = submitted(login, "--instances", "2")
    at_work(run)
    login.slurm.run(["scancel", job])
    assert login.ended(run, job) == "CANCELLED", everything_printed(run)
    assert not (run.folder / "failure.json").exists()


def test_a_requeue_asks_the_trainer_to_save_and_starts_the_server_with_the_job(login: Login) -> None:
    run, job = submitted(login, "--instances", "2")
    at_work(run)
    login.saves_and_goes_on(run, job)
    server = server_of(run)
    assert server is not None
    assert (server.attempt, server.starts) == (2, 1)


def test_a_requeue_by_slurm_continues_with_the_server_as_attempt_2(login: Login) -> None:
    run, job = submitted(login, "--instances", "2")
    at_work(run)
    login.slurm.run(["scontrol", "requeue", job])
    until(lambda: login.queue() and run.word("attempt") == "2", "the second attempt", LIMIT_S, POLL_S)
    (run.folder / "finish").touch()
    assert login.ended(run, job) == "COMPLETED", everything_printed(run)
    server = server_of(run)
    assert server is not None
    assert (server.attempt, server.starts) == (2, 1)
