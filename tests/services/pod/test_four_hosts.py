"""A pod of four hosts with addresses of their own (network namespaces, an sshd in each), through real mpirun.

Three could not be: a job uses a power of two of IPUs, evenly over its hosts.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.login_node import LoginNode
from tests.support.network_hosts import INTERFACE, NetworkHosts, network_hosts
from tests.support.pod_site import STAY, PodSite
from tests.support.programs import TRAINJOB
from tests.support.waiting import until

pytestmark = pytest.mark.timeout(600)
NAMES = ("podh1", "podh2", "podh3", "podh4")


class FourHosts(PodSite):
    """The launch host is the first of four; the user is logged in there."""

    hosts: NetworkHosts

    def trainjob(self, *words: str, code: int | None = 0) -> subprocess.CompletedProcess[str]:
        ended = self.hosts.call(NAMES[0], TRAINJOB, *words, environ=self.environ, folder=self.here)
        assert code is None or ended.returncode == code, (words, ended.returncode, ended.stdout, ended.stderr)
        return ended


@pytest.fixture
def site(tmp_path: Path, needs: Callable[[str], Path]) -> Iterator[FourHosts]:
    needs("mpirun")
    needs("ip")
    made = FourHosts(tmp_path, LoginNode(tmp_path / "node", needs("sshd"), 0))
    standins = {"TRAINJOB_STANDIN_VIPU": str(tmp_path / "vipu"), "TRAINJOB_STANDIN_HOSTS": "real"}
    with network_hosts(needs("sshd"), NAMES, programs=tmp_path / "vipu-bin", environment=standins) as hosts:
        made.hosts = hosts
        made.environ.update(hosts.environment)
        made.write("stay.py", STAY)
        addresses = [hosts.address(name) for name in NAMES]
        made.cluster(ssh=False, hosts=addresses, network={"interface": INTERFACE})
        yield made


def staying(site: FourHosts) -> str:
    asked = ("--cluster", "pod", "--instances", "4", "--replicas", "16", "--again")
    run: str = site.json("submit", *asked, "--", "python", "stay.py")["id"]
    site.wait_until_ready(run, ranks=4)
    return run


ONCE = """\
command: [python, stay.py]
once:
  job: [{name: model, shell: 'uname -n >>"$TRAINJOB_RUN_DIR/of-the-run"'}]
  node: [{name: environment, shell: 'uname -n >>"$TRAINJOB_RUN_DIR/of-hosts"'}]
"""


def host_of(site: FourHosts, run: str, rank: int) -> str:
    """Return the host that a rank's log names in its first line."""
    head = (site.there(run) / "logs" / f"rank-{rank:04d}.log").read_text().splitlines()[0]
    return head.split(" · ")[2]


def test_four_hosts_run_one_job_and_cancel_reaches_all(site: FourHosts) -> None:
    run = staying(site)
    assert [host_of(site, run, rank) for rank in range(4)] == list(NAMES)
    lines = [line for rank in range(4) for line in site.json("logs", run, "--rank", str(rank))["lines"]]
    reported = [json.loads(line) for line in lines if line.startswith("{")]
    assert [one["POPDIST_REPLICA_INDEX_OFFSET"] for one in reported] == ["0", "4", "8", "12"]
    assert [one["POPDIST_LOCAL_INSTANCE_INDEX"] for one in reported] == ["0", "0", "0", "0"]
    (site.there(run) / "release").touch()
    site.wait(run, "COMPLETED")
    lost = staying(site)
    os.kill(site.find(lost, "job.sh")[0], signal.SIGKILL)
    site.wait(lost, "LOST")
    assert len(site.find(lost, "stay.py")) >= 4
    site.json("cancel", lost)
    until(lambda: site.processes(lost) == [], "nothing left on any host")
    assert site.partitions() == {}


def test_steps_before_the_ranks_run_once_for_the_run_and_once_on_each_host(site: FourHosts) -> None:
    site.write("job.yaml", ONCE)
    asked = ("--cluster", "pod", "--job", "job.yaml", "--instances", "8", "--replicas", "16")
    run: str = site.json("submit", *asked)["id"]
    site.wait_until_ready(run, ranks=8)
    folder = site.there(run)
    assert (folder / "of-the-run").read_text().split() == [NAMES[0]]
    assert sorted((folder / "of-hosts").read_text().split()) == list(NAMES)
    (folder / "release").touch()
    site.wait(run, "COMPLETED")


def test_a_host_that_can_not_be_reached_is_named_before_anything_is_submitted(site: FourHosts) -> None:
    site.hosts.cut(NAMES[2])
    output = site.trainjob("submit", "--cluster", "pod", "--instances", "4", "--", "python", "stay.py", code=1).stderr
    assert "host 10.213.78.3 can't be reached from this machine" in output
    assert "host 10.213.78.1 can't log in to 10.213.78.3" in output
    assert list(site.runs.iterdir()) == []
