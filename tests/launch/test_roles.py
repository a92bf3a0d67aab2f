"""Jobs of several roles on this machine: each role killed, the job told to end or asked to save, and what is left."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.local_runs import Here, Run, command_of, kill
from tests.support.role_programs import READY_AT_LAST, SERVER, TRAINER, roles
from tests.support.waiting import until
from trainjob.contract.paths import RunPaths
from trainjob.records import roles as role_records
from trainjob.records.roles import RoleRecord

READY_BY_FILE = """\
import os, pathlib, time
(pathlib.Path(os.environ["TRAINJOB_RUN_DIR"]) / "roles" / "server" / "up").touch()
time.sleep(600)
"""


@pytest.fixture
def site(here: Here) -> Here:
    here.write("server.py", SERVER)
    here.write("trainer.py", TRAINER)
    return here


def submitted(site: Here, job: dict[str, Any]) -> Run:
    file = site.folder / "job.yaml"
    file.write_text(json.dumps(job))
    return site.submit(flags=("--job", str(file)), instances=1)


def at_work(run: Run) -> None:
    until(lambda: "step 3" in run.log(0), "the trainer to train")


def server_of(run: Run) -> RoleRecord:
    found = role_records.read(RunPaths(run.folder).of_role("server"))
    assert found is not None
    return found


def server_process(run: Run) -> int:
    (pid,) = run.find("python", "server.py")
    return pid


def test_the_trainer_starts_when_the_server_is_ready_and_ends_it(site: Here) -> None:
    run = submitted(site, {"roles": roles(env={"LOADS_S": "1.5", "FLAVOUR": "a b"})})
    until(lambda: run.find("python", "server.py"), "the server to start")
    assert run.log(0) == ""
    at_work(run)
    told = run.status()["roles"]["server"]
    assert (told["state"], told["starts"]) == ("READY", 1)
    printed = site.run("logs", run.id, "--role", "server").stdout
    assert f"serving at {told['address']} a b" in printed
    (run.folder / "finish").touch()
    run.wait("COMPLETED")
    run.wait_until_nothing_is_left()
    assert server_of(run).state == "ENDED"
    assert RunPaths(run.folder).end_mark(1).read_text() == "0\n", "bash may have lost it"


def test_every_look_at_ranks_takes_the_name_of_a_server(site: Here) -> None:
    run = submitted(site, {"roles": roles()})
    at_work(run)
    (stacks,) = site.json("stacks", run.id, "--role", "server")
    assert "serve_forever" in json.dumps(stacks)
    samples = RunPaths(run.folder).of_role("server").rank_usage(0)
    until(lambda: samples.exists() and "\n" in samples.read_text(), "a sample")
    (usage,) = site.json("usage", run.id, "--role", "server")
    assert usage["most_memory_bytes"] > 0
    for command in ("logs", "stacks", "usage"):
        refused = site.run(command, run.id, "--role", "sever", code=1).stderr
        assert f"run {run.id} has no role sever. It has server, train" in refused
    site.run("cancel", run.id)
    run.wait("CANCELLED")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_any_end_of_the_server_fails_the_job(site: Here, number: signal.Signals) -> None:
    run = submitted(site, {"roles": roles()})
    at_work(run)
    os.kill(server_process(run), number)
    run.wait("FAILED")
    run.wait_until_nothing_is_left()
    why = f"role server ended with exit code {128 + number}, and train needs it"
    assert why in run.status()["cause"]["text"]


def test_what_ends_the_launcher_of_a_server_is_not_noted_as_a_request_to_the_job(site: Here) -> None:
    run = submitted(site, {"roles": roles()})
    at_work(run)
    launchers = run.find("python3", "-m", "trainjob.launch")
    launcher = next(pid for pid in launchers if command_of(pid)[-1].endswith("roles/server"))
    os.kill(launcher, signal.SIGTERM)
    run.wait("FAILED")
    assert not RunPaths(run.folder).of_role("server").bypassed(1, "TERM").exists()


def test_a_server_that_takes_no_gpu_sees_none(site: Here) -> None:
    run = submitted(site, {"roles": roles(gpus=0)})
    at_work(run)
    environ = Path(f"/proc/{server_process(run)}/environ").read_bytes().split(b"\0")
    assert b"CUDA_VISIBLE_DEVICES=" in environ
    site.run("cancel", run.id)
    run.wait("CANCELLED")


def test_a_server_that_ends_with_0_fails_the_job(site: Here) -> None:
    quits = {"command": [sys.executable, "-c", "pass"], "ready": "{host}:{port}"}
    run = submitted(site, {"roles": {**roles(), "server": quits}})
    run.wait("FAILED")
    assert "role server ended with exit code 0, and train needs it" in run.status()["cause"]["text"]
    assert run.log(0) == ""


def test_a_server_that_may_restart_serves_at_the_same_address_again(site: Here) -> None:
    run = submitted(site, {"roles": roles(restarts=1)})
    at_work(run)
    before = server_of(run)
    kill([server_process(run)])
    until(lambda: (server_of(run).starts, server_of(run).state) == (2, "READY"), "another start")
    assert server_of(run).address == before.address
    kill([server_process(run)])
    run.wait("FAILED")
    run.wait_until_nothing_is_left()


def test_a_server_that_is_never_ready_fails_the_job(site: Here) -> None:
    run = submitted(site, {"roles": roles(env={"LOADS_S": "600"}, ready_timeout_s=1)})
    run.wait("FAILED")
    run.wait_until_nothing_is_left()
    assert "role server was not ready within 1 s" in run.status()["cause"]["text"]


def test_a_trainer_that_fails_has_the_last_word(site: Here) -> None:
    run = submitted(
        site, {"roles": {**roles(), "train": {"command": ["python", "-c", "exit(7)"], "needs": ["server"]}}}
    )
    run.wait("FAILED")
    run.wait_until_nothing_is_left()
    assert run.word("exit_code") == "7"


@pytest.mark.parametrize("which", ["guard", "worker", "both"])
def test_a_killed_supervision_leaves_no_process(site: Here, which: str) -> None:
    run = submitted(site, {"roles": roles()})
    at_work(run)
    guard, worker = run.find("python3", "-m", "trainjob.launch.roles")
    kill({"guard": [guard], "worker": [worker], "both": [guard, worker]}[which])
    # Whoever is left asks the trainer to end, which may have the time to save.
    until(lambda: run.word("state") in ("FAILED", "STOPPED"), "the end of the run")
    run.wait_until_nothing_is_left()
    told = run.status()
    # Nobody has recorded the end of a server whose supervision was killed.
    assert (told["attempt"], told["roles"]["server"]["state"], told["exit_code"]) == (1, "ENDED", 137)
    said = "SIGKILL ended the process that supervised the ranks" in run.word("logs/scheduler.out")
    assert said == (which == "worker")


def test_a_cancelled_trainer_saves_while_its_server_lives(site: Here) -> None:
    run = submitted(site, {"roles": roles()})
    at_work(run)
    site.run("cancel", run.id)
    run.wait("CANCELLED")
    run.wait_until_nothing_is_left()
    assert int(run.word("checkpoint.pt")) >= 3


def test_a_cancel_before_the_server_is_ready(site: Here) -> None:
    run = submitted(site, {"roles": roles(env={"LOADS_S": "600"})})
    until(lambda: run.find("python", "server.py"), "the server to begin")
    site.run("cancel", run.id)
    run.wait("CANCELLED")
    run.wait_until_nothing_is_left()
    assert run.log(0) == ""


def test_a_run_that_was_asked_to_stop_goes_on_with_its_server_as_attempt_2(site: Here) -> None:
    run = submitted(site, {"roles": roles()})
    at_work(run)
    os.kill(run.script, signal.SIGUSR1)
    run.wait("STOPPED")
    step = int(run.word("checkpoint.pt"))
    site.run("resume", run.id)
    until(lambda: f"step {step + 1}\n" in run.log(0), "it to go on")
    (run.folder / "finish").touch()
    run.wait("COMPLETED")
    assert (server_of(run).attempt, server_of(run).starts) == (2, 1)


def test_a_file_says_that_a_server_is_ready(site: Here) -> None:
    site.write("server.py", READY_BY_FILE)
    site.write("trainer.py", "print('trained')")
    run = submitted(site, {"roles": roles(ready="file:up")})
    run.wait("COMPLETED")
    assert "trained" in run.log(0)


def test_a_server_that_is_not_ready_in_time_is_started_again_where_it_may_be(site: Here) -> None:
    site.write("server.py", READY_AT_LAST)
    site.write("trainer.py", "print('trained')")
    run = submitted(site, {"roles": roles(ready="file:up", ready_timeout_s=2, restarts=1)})
    run.wait("COMPLETED")
    run.wait_until_nothing_is_left()
    assert server_of(run).starts == 2
    assert "role server was not ready within 2 s: it is ended, and started again" in run.word("logs/scheduler.out")
