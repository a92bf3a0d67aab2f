"""A job of several roles on real sshd hosts: the server on the last one, and a trainer on the others."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.backend_places import OfHosts
from tests.support.local_runs import command_of, kill, marked
from tests.support.network_hosts import NetworkHosts, network_hosts
from tests.support.role_programs import SERVER, TRAINER, roles
from tests.support.waiting import until

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def hosts(needs: Callable[[str], Path]) -> Iterator[NetworkHosts]:
    for service in ("ip", "mpirun", "rsync"):
        needs(service)
    with network_hosts(needs("sshd"), ("gpu-1", "gpu-2", "gpu-3")) as made:
        yield made


@pytest.fixture
def run(hosts: NetworkHosts, tmp_path: Path) -> Iterator[tuple[OfHosts, str, Path]]:
    place = OfHosts(hosts, tmp_path, "far")
    place.write("server.py", SERVER)
    place.write("trainer.py", TRAINER)
    place.write("job.json", json.dumps({"roles": roles()}))
    words = ("--job", "job.json", "--hosts", "2", "--instances", "2")
    run = str(place.json("submit", "--cluster", "far", *words)["id"])
    folder = place.runs / run
    log = folder / "logs" / "rank-0001.log"
    until(lambda: log.exists() and "step 3" in log.read_text(), "the trainer to train", 90)
    yield place, run, folder
    if (folder / "state").read_text() == "RUNNING\n":
        place.json("cancel", run)


def nothing_is_left(folder: Path) -> None:
    until(lambda: not marked(folder), "no process of the run", 30)


def test_the_server_is_on_the_last_host_and_ends_with_the_run(run: tuple[OfHosts, str, Path]) -> None:
    place, name, folder = run
    first_line = (folder / "roles/server/logs/rank-0000.log").read_text().splitlines()[0]
    assert " · gpu-3 · " in first_line
    (folder / "finish").touch()
    place.json("wait", name, "--timeout-s", "60")
    assert (folder / "state").read_text() == "COMPLETED\n", (folder / "logs/scheduler.out").read_text()
    told = place.json("status", name)["roles"]["server"]
    assert told["state"] == "ENDED"
    assert any("serving at" in line for line in place.json("logs", name, "--role", "server")["lines"])
    nothing_is_left(folder)


def test_a_server_that_is_killed_fails_the_job(run: tuple[OfHosts, str, Path]) -> None:
    _, _, folder = run
    servers = [pid for pid in marked(folder) if command_of(pid)[1:2] == ["server.py"]]
    assert servers
    kill(servers)
    began = time.monotonic()
    until(lambda: (folder / "state").read_text() == "FAILED\n", "the end of the run", 90)
    assert time.monotonic() - began < 60
    assert json.loads((folder / "failure.json").read_text())["step"] == "role server"
    nothing_is_left(folder)


def test_a_server_without_a_gpu_is_on_a_host_of_the_ranks(hosts: NetworkHosts, tmp_path: Path) -> None:
    place = OfHosts(hosts, tmp_path, "far")
    place.write("server.py", SERVER)
    place.write("trainer.py", TRAINER)
    place.write("job.json", json.dumps({"roles": roles(gpus=0)}))
    run = str(place.json("submit", "--cluster", "far", "--job", "job.json", "--hosts", "3", "--instances", "3")["id"])
    folder = place.runs / run
    (folder / "finish").touch()
    place.json("wait", run, "--timeout-s", "90")
    assert (folder / "state").read_text() == "COMPLETED\n", (folder / "logs/scheduler.out").read_text()
    assert " · gpu-1 · " in (folder / "roles/server/logs/rank-0000.log").read_text().splitlines()[0]
    nothing_is_left(folder)
