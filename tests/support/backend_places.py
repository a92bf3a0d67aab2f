"""One place for every back end: a cluster file, a user beside it, and what the suite has to know of the difference."""

from __future__ import annotations

import dataclasses
import json
import os
import shlex
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support import SUPPORT, network_hosts, pod_site, slurm_site
from tests.support.backend_runs import Run
from tests.support.backend_scripts import CODES, STAY
from tests.support.local_runs import Here
from tests.support.network_hosts import NetworkHosts
from tests.support.printed_json import reported
from tests.support.programs import TRAINJOB, ran

Needs = Callable[[str], Path]
_LIMIT_S = 240.0
_BY_HAND = 'cd "$1" && setsid bash job.sh </dev/null >/dev/null 2>&1 &'


class Place(ABC):
    """The cluster file `cluster`; the suite's runs have two ranks there."""

    # What status says once kill -9 has ended the job script: a scheduler knows, files alone don't.
    script_killed = "LOST"
    flags: tuple[str, ...] = ("--instances", "2")
    task_flags: tuple[str, ...] = ()
    # How long one call of the task's loss takes in a job that has to be met at work.
    pause_s = 0.2

    def __init__(self, cluster: str, runs: Path) -> None:
        self.cluster = cluster
        self.runs = runs  # the folder of the run directories that ranks write
        for name, text in (
            ("codes.py", CODES),
            ("stay.py", STAY),
            ("slow_task.py", (SUPPORT / "slow_task.py").read_text()),
        ):
            self.write(name, text)

    @abstractmethod
    def write(self, name: str, text: str) -> None:
        """Write a file of the user's project."""

    @abstractmethod
    def call(self, *words: str) -> tuple[int, str, str]:
        """Return exit code, output and errors of a command of the user's."""

    @abstractmethod
    def start_by_hand(self, folder: Path) -> None:
        """Start the job script of a run directory as a person would; it runs on when this returns."""

    def trainjob(self, *words: str, code: int = 0) -> str:
        ended = self.call_trainjob(*words)
        assert ended[0] == code, (words, *ended)
        return ended[1]

    def call_trainjob(self, *words: str) -> tuple[int, str, str]:
        return self.call(TRAINJOB, *words)

    def at(self, run: str) -> Run:
        return Run(self, run)

    def json(self, *words: str, code: int = 0) -> Any:
        at = words.index("--") if "--" in words else len(words)
        return reported(self.trainjob(*words[:at], "--json", *words[at:], code=code))

    def submit(self, *words: str, code: int = 0) -> Run:
        """Return a run that was handed over. `words` are further flags and, behind `--`, a command."""
        asked = ("submit", "--cluster", self.cluster, "--again", *self.flags, *words)
        return self.at(self.json(*asked, code=code)["id"])

    def staying(self, *words: str) -> Run:
        """Return a run of the script STAY whose ranks are at work."""
        run = self.submit("--", "python", "stay.py", *words)
        run.wait_until_ready()
        return run

    def task(self, *, slow: bool = False) -> tuple[str, ...]:
        """Return the flags of 24 updates that end with the same weights however often they are interrupted.

        Where `slow`, the first attempt goes no further than some updates before it is told to stop, or superseded.
        """
        job = ("--task", "slow_task:Slow", "--samples", "256", "--micro-batch", "4", "--seed", "3", "--updates", "24")
        plain = ("--optimizer", "sgd", "--momentum", "0", "--checkpoint-every", "8", "--log-every", "2")
        pace = ("--env", f"PAUSE_S={self.pause_s if slow else 0.0}", "--env", f"HOLDS={int(slow)}")
        return (*job, *plain, *self.task_flags, *pace)


class OfThisMachine(Place):
    """kind: local."""

    def __init__(self, folder: Path) -> None:
        self.here = Here(folder)
        super().__init__("local", folder / "data" / "trainjob" / "runs")

    def write(self, name: str, text: str) -> None:
        self.here.write(name, text)

    def call(self, *words: str) -> tuple[int, str, str]:
        return _called(words, self.here.project, self.here.environ)

    def start_by_hand(self, folder: Path) -> None:
        environ = {**self.here.environ, "TRAINJOB_PYTHON": sys.executable}
        _required(_called(("sh", "-c", _BY_HAND, "sh", str(folder)), folder, environ))


class OfSlurm(Place):
    """kind: slurm; cluster `here` is for one on the login node, `far` is reached over ssh."""

    script_killed = "FAILED"

    def __init__(self, site: slurm_site.Site, cluster: str) -> None:
        self.site = site
        super().__init__(cluster, site.runs)

    def write(self, name: str, text: str) -> None:
        (self.site.here / name).write_text(text)

    def call(self, *words: str) -> tuple[int, str, str]:
        ended = self.site.run(*words, timeout_s=_LIMIT_S)
        return ended.code, ended.out, ended.err

    def start_by_hand(self, folder: Path) -> None:
        _required(self.call("sh", "-c", 'cd "$1" && sbatch job.sbatch', "sh", str(folder)))


class OfPod(Place):
    """kind: ipu-pod, under the stand-in poprun; `far` has its launch host over ssh, `here` is for one at that host."""

    flags = ("--instances", "2", "--replicas", "4")
    task_flags = ("--device-iterations", "2")
    pause_s = 0.1  # an instance calls it for each replica and each update of a block

    def __init__(self, site: pod_site.PodSite, cluster: str) -> None:
        self.site = site
        site.cluster(cluster, ssh=cluster == "far", ipus=4)
        super().__init__(cluster, site.runs)

    def write(self, name: str, text: str) -> None:
        self.site.write(name, text)

    def call(self, *words: str) -> tuple[int, str, str]:
        return _called(words, self.site.here, self.site.environ)

    def start_by_hand(self, folder: Path) -> None:
        _required(self.call("ssh", "login", shlex.join(["sh", "-c", _BY_HAND, "sh", str(folder)])))


class OfHosts(Place):
    """kind: hosts; `far` has its launch host over ssh, `here` is for one at that host."""

    def __init__(self, hosts: NetworkHosts, folder: Path, cluster: str) -> None:
        self.hosts = hosts
        self.folder = folder / cluster
        self.seat = "gpu-1" if cluster == "here" else "desk"
        own = {"XDG_DATA_HOME": str(self.folder / "data"), "XDG_CONFIG_HOME": str(self.folder / "config")}
        self.environ = {**hosts.environment, **own, "GIT_CONFIG_GLOBAL": os.devnull, "COLUMNS": "200"}
        (self.folder / "clusters").mkdir(parents=True)
        (folder / "runs").mkdir(exist_ok=True)
        super().__init__(cluster, folder / "runs")
        self.cluster_file(cluster, **({"ssh": {"host": "gpu-1"}} if cluster == "far" else {}))

    def cluster_file(self, name: str, **more: Any) -> None:
        """Write a cluster file, as JSON, which is YAML."""
        values = {
            "kind": "hosts",
            "hosts": "gpu-[1-3]",
            "network": {"interface": network_hosts.INTERFACE},
            "python": sys.executable,
            "runs_dir": str(self.runs),
            # Each host believes that all cores are its own.
            "env": {"OMP_NUM_THREADS": "1"},
            **more,
        }
        (self.folder / "clusters" / f"{name}.yaml").write_text(json.dumps(values))

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)

    def call(self, *words: str) -> tuple[int, str, str]:
        ended = self.hosts.call(self.seat, *words, environ=self.environ, folder=self.folder)
        return ended.returncode, ended.stdout, ended.stderr

    def start_by_hand(self, folder: Path) -> None:
        _required(self.call("ssh", "gpu-1", shlex.join(["sh", "-c", _BY_HAND, "sh", str(folder)])))


def _called(words: tuple[str, ...], folder: Path, environ: dict[str, str]) -> tuple[int, str, str]:
    ended = ran(words, folder=folder, environ=environ, timeout_s=_LIMIT_S)
    return ended.returncode, ended.stdout, ended.stderr


def _required(ended: tuple[int, str, str]) -> None:
    assert ended[0] == 0, ended


@contextmanager
def this_machine(folder: Path, needs: Needs) -> Iterator[dict[str, Place]]:
    place = OfThisMachine(folder)
    try:
        yield {"here": place}
    finally:
        place.here.end_everything()


@contextmanager
def slurm(folder: Path, needs: Needs) -> Iterator[dict[str, Place]]:
    needs("slurm")
    needs("rsync")
    # Ranks that ignore TERM are killed so much later, instead of after half a minute.
    description = dataclasses.replace(slurm_site.DESCRIPTION, settings={"KillWait": "3"})
    with slurm_site.site(folder, needs("sshd"), description) as site:
        yield {name: OfSlurm(site, name) for name in ("here", "far")}


@contextmanager
def pod(folder: Path, needs: Needs) -> Iterator[dict[str, Place]]:
    needs("mpirun")
    with pod_site.pod_site(folder, needs("sshd")) as site:
        site.brings_poptorch()
        # At the launch host a user has what the site installs there.
        site.environ["TRAINJOB_STANDIN_VIPU"] = str(site.folder / "vipu")
        site.environ["PATH"] = f"{site.folder / 'vipu-bin'}{os.pathsep}{site.environ['PATH']}"
        yield {name: OfPod(site, name) for name in ("here", "far")}


@contextmanager
def hosts(folder: Path, needs: Needs) -> Iterator[dict[str, Place]]:
    for service in ("ip", "mpirun", "rsync"):
        needs(service)
    with network_hosts.network_hosts(needs("sshd"), ("gpu-1", "gpu-2", "gpu-3")) as made:
        yield {name: OfHosts(made, folder, name) for name in ("here", "far")}


# kind -> what starts its services, and the places that they make: locally and, where that can be, over ssh.
KINDS = {"local": this_machine, "slurm": slurm, "ipu-pod": pod, "hosts": hosts}
