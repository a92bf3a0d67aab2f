"""A job that drives a real Ray cluster on two real sshd hosts, each with an address of its own."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.backend_places import OfHosts
from tests.support.local_runs import marked
from tests.support.network_hosts import network_hosts
from tests.support.role_programs import DRIVER, ray_job
from tests.support.waiting import until

pytestmark = [pytest.mark.full, pytest.mark.timeout(400)]


def test_ray_is_up_on_both_hosts_before_the_driver_and_ends_with_it(
    needs: Callable[[str], Path], tmp_path: Path
) -> None:
    for service in ("ip", "mpirun", "rsync"):
        needs(service)
    with network_hosts(needs("sshd"), ("gpu-1", "gpu-2", "gpu-3")) as hosts:
        place = OfHosts(hosts, tmp_path, "far")
        place.write("driver.py", DRIVER)
        place.write("job.json", json.dumps(ray_job(str(needs("ray")), 2)))
        words = ("--job", "job.json", "--hosts", "2", "--instances", "2")
        run = str(place.json("submit", "--cluster", "far", *words)["id"])
        folder = place.runs / run
        log = folder / "logs" / "rank-0000.log"
        until(lambda: log.exists() and "step 3" in log.read_text(), "the driver to train", 240)
        printed = log.read_text()
        assert printed.index("Ray has all of its 2 nodes") < printed.index("alive 2 ") < printed.index("worked on 2")
        (folder / "finish").touch()
        place.json("wait", run, "--timeout-s", "60")
        assert (folder / "state").read_text() == "COMPLETED\n", (folder / "logs/scheduler.out").read_text()
        until(lambda: not marked(folder), "no process of the run", 30)
