"""A pod of four hosts with addresses of their own (network namespaces, an sshd in each), through real mpirun.

Three could not be: a job uses a power of two of IPUs, evenly over its hosts.
"""

from __future__ import annotations

import json
import os
import pwd
import shlex
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from login_node import new_key
from pod_site import STAY, TRAINJOB, PodSite
from waiting import until

pytestmark = pytest.mark.timeout(600)
NAMES = ("podh1", "podh2", "podh3", "podh4")


class Hosts:
    """Four network namespaces on one bridge that leads nowhere else."""

    def __init__(self, folder: Path, sshd: Path) -> None:
        self.folder = folder
        self.sshd = sshd
        self.mark = f"tj{os.getpid() % 10000}"
        self.daemons: list[subprocess.Popen[bytes]] = []

    def space(self, number: int) -> str:
        return f"{self.mark}h{number}"

    @staticmethod
    def address(number: int) -> str:
        return f"10.213.77.{number}"

    def start(self) -> None:
        _ip("netns", "add", f"{self.mark}sw")
        _ip("-n", f"{self.mark}sw", "link", "add", "bridge0", "type", "bridge")
        _ip("-n", f"{self.mark}sw", "link", "set", "bridge0", "up")
        for number in range(1, len(NAMES) + 1):
            self._join(number)
        self._keys()
        for number in range(1, len(NAMES) + 1):
            self._sshd(number)

    def _join(self, number: int) -> None:
        space, end = self.space(number), f"{self.mark}p{number}"
        _ip("netns", "add", space)
        _ip("link", "add", "pod0", "netns", space, "type", "veth", "peer", "name", end, "netns", f"{self.mark}sw")
        _ip("-n", f"{self.mark}sw", "link", "set", end, "master", "bridge0", "up")
        _ip("-n", space, "addr", "add", f"{self.address(number)}/24", "dev", "pod0")
        for device in ("lo", "pod0"):
            _ip("-n", space, "link", "set", device, "up")

    def _keys(self) -> None:
        new_key(self.folder / "host_key")
        new_key(self.folder / "id")
        (self.folder / "authorized").write_text((self.folder / "id.pub").read_text())
        kind, key = (self.folder / "host_key.pub").read_text().split()[:2]
        known = self.folder / "known_hosts"
        known.write_text("".join(f"{self.address(n)} {kind} {key}\n" for n in range(1, len(NAMES) + 1)))
        lines = []
        for number, name in enumerate(NAMES, 1):
            lines += [f"Host {self.address(number)} {name}", f"  HostName {self.address(number)}"]
            lines += [f"  User {pwd.getpwuid(os.getuid()).pw_name}", f"  IdentityFile {self.folder / 'id'}"]
            lines += [f"  UserKnownHostsFile {known}", "  IdentitiesOnly yes", "  StrictHostKeyChecking yes"]
        (self.folder / "config").write_text("\n".join([*lines, ""]))
        (self.folder / "bin").mkdir()
        ssh = self.folder / "bin" / "ssh"
        ssh.write_text(f'#!/bin/sh\nexec /usr/bin/ssh -F {shlex.quote(str(self.folder / "config"))} "$@"\n')
        ssh.chmod(0o755)

    def _sshd(self, number: int) -> None:
        config = self.folder / f"sshd_config{number}"
        environment = " ".join(f'"{name}={value}"' for name, value in self.environment().items())
        config.write_text(
            f"ListenAddress {self.address(number)}:22\nHostKey {self.folder}/host_key\nPidFile none\nUsePAM no\n"
            f"AuthorizedKeysFile {self.folder}/authorized\nStrictModes no\nPermitRootLogin yes\nSetEnv {environment}\n"
        )
        Path("/run/sshd").mkdir(exist_ok=True)
        words = [*self._on(number), str(self.sshd), "-D", "-e", "-f", str(config)]
        with (self.folder / f"sshd{number}.log").open("wb") as log:
            self.daemons.append(subprocess.Popen(words, stderr=log))

    def environment(self) -> dict[str, str]:
        path = f"{self.folder / 'bin'}{os.pathsep}{self.folder.parent / 'vipu-bin'}{os.pathsep}{os.environ['PATH']}"
        return {
            "PATH": path,
            "TRAINJOB_STANDIN_VIPU": str(self.folder.parent / "vipu"),
            "TRAINJOB_STANDIN_HOSTS": "real",
            "HOME": os.environ.get("HOME", "/root"),
        }

    def _on(self, number: int) -> list[str]:
        # A name of its own: mpirun tells hosts apart by what they call themselves.
        named = 'hostname "$1"; shift; exec "$@"'
        space = ["ip", "netns", "exec", self.space(number), "unshare", "--uts", "sh", "-c", named, "sh"]
        return [*space, NAMES[number - 1]]

    def inside(self, *words: str, environment: dict[str, str], folder: Path) -> subprocess.CompletedProcess[str]:
        """Run a command on the first host."""
        return subprocess.run(
            [*self._on(1), *words],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )

    def end(self) -> None:
        for daemon in self.daemons:
            daemon.terminate()
            daemon.wait(20)
        for name in (*(self.space(n) for n in range(1, len(NAMES) + 1)), f"{self.mark}sw"):
            pids = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True, check=False).stdout
            for pid in pids.split():
                os.kill(int(pid), signal.SIGKILL)
            subprocess.run(["ip", "netns", "del", name], check=False)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


class FourHosts(PodSite):
    """The launch host is the first of four; the user is logged in there."""

    hosts: Hosts

    def trainjob(self, *words: str, code: int | None = 0) -> subprocess.CompletedProcess[str]:
        ended = self.hosts.inside(TRAINJOB, *words, environment=self.environ, folder=self.here)
        assert code is None or ended.returncode == code, (words, ended.returncode, ended.stdout, ended.stderr)
        return ended


@pytest.fixture
def site(tmp_path: Path, needs: Callable[[str], Path]) -> Iterator[FourHosts]:
    needs("mpirun")
    needs("ip")
    (tmp_path / "net").mkdir()
    hosts = Hosts(tmp_path / "net", needs("sshd"))
    from login_node import LoginNode

    made = FourHosts(tmp_path, LoginNode(tmp_path / "node", hosts.sshd, 0))
    made.hosts = hosts
    made.environ.update(hosts.environment())
    made.write("stay.py", STAY)
    try:
        hosts.start()
        made.cluster(
            ssh=False,
            hosts=[Hosts.address(number) for number in (1, 2, 3, 4)],
            network={"interface": "pod0"},
        )
        yield made
    finally:
        made.end_everything()
        hosts.end()


def staying(site: FourHosts) -> str:
    asked = ("--cluster", "pod", "--instances", "4", "--replicas", "16", "--again")
    run: str = site.json("submit", *asked, "--", "python", "stay.py")["id"]
    site.wait_until_ready(run, ranks=4)
    return run


def host_of(site: FourHosts, run: str, rank: int) -> str:
    """Return the host that a rank's log names in its first line."""
    head = (site.there(run) / "logs" / f"rank-{rank:04d}.log").read_text().splitlines()[0]
    return head.split(" · ")[2]


def test_four_hosts_run_one_job_and_cancel_reaches_all(site: FourHosts) -> None:
    run = staying(site)
    assert [host_of(site, run, rank) for rank in range(4)] == list(NAMES)
    lines = [line for rank in range(4) for line in site.json("logs", run, "--rank", str(rank))["lines"]]
    told = [json.loads(line) for line in lines if line.startswith("{")]
    assert [one["POPDIST_REPLICA_INDEX_OFFSET"] for one in told] == ["0", "4", "8", "12"]
    assert [one["POPDIST_LOCAL_INSTANCE_INDEX"] for one in told] == ["0", "0", "0", "0"]
    (site.there(run) / "release").touch()
    site.wait(run, "COMPLETED")
    lost = staying(site)
    os.kill(site.find(lost, "job.sh")[0], signal.SIGKILL)
    site.wait(lost, "LOST")
    assert len(site.find(lost, "stay.py")) >= 4
    site.json("cancel", lost)
    until(lambda: site.processes(lost) == [], "nothing left on any host")
    assert site.partitions() == {}


def test_a_host_that_can_not_be_reached_is_named_before_anything_is_submitted(site: FourHosts) -> None:
    _ip("-n", site.hosts.space(3), "link", "set", "pod0", "down")
    said = site.trainjob("submit", "--cluster", "pod", "--instances", "4", "--", "python", "stay.py", code=1).stderr
    assert "host 10.213.77.3 can't be asked" in said
    assert "host 10.213.77.1 can't log in to 10.213.77.3" in said
    assert list(site.runs.iterdir()) == []
