"""What is wrong with a pod, found from what its hosts and V-IPU say."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.cases import each
from trainjob.backends.project import Project
from trainjob.check.checks import problems
from trainjob.check.context import Context, Depth
from trainjob.cluster.job import Job
from trainjob.contract.errors import Problem
from trainjob.data.manifest import SHIPPED
from trainjob.kinds.table import cluster_of
from trainjob.machines.process import Completed
from trainjob.machines.ssh.failures import SshError
from trainjob.planning.build import plan
from trainjob.render.request import Request

GOOD = {
    "sdk": "poplar-ubuntu_20_04-3.3.0+7857-b67b751185",
    "poprun": "yes",
    "python": "3.8.10",
    "torch": "2.0.1+cpu",
    "poptorch": "3.3.0+113432",
    "interpreter-exit": "0",
    "network": "eno1",
    "data": "abcdef0123",
    "cache-mb": "900000",
    "runs-dir": "folder 77",
    "runs-mb": "900000",
    "user": "1000 me",
    "memlock": "unlimited",
    "complete": "yes",
}
POD: dict[str, Any] = {
    "kind": "ipu-pod",
    "ipus": 16,
    "hosts": "h[1-2]",
    "vipu": {"server": "ctl", "partition": "p16"},
    "network": {"interface": "eno1"},
    "sdk": {"version": "3.3.0", "path": "/sdk", "venv": "/venv"},
    "poprun": {"executable_cache": "/cache"},
    "runs_dir": "/runs",
    "data_dir": "/data",
}
PARTITION = "Name: p16\nSize: 16\nState: PS_ACTIVE\n"


class Hosts:
    """A launch host that answers as it is told, and no command is run."""

    name = "login"

    def __init__(self, second: dict[str, str | None], partition: str | None, server: str | None) -> None:
        self.answers: dict[str, dict[str, str | None]] = {"h1": {**GOOD}, "h2": {**GOOD, **second}}
        self.partition = partition
        self.server = server

    def run(self, arguments: Sequence[str], **_: Any) -> Completed:
        if self.server == "down":
            raise SshError("name", "login is a name that nobody knows")
        if list(arguments) == ["id", "-u"]:
            return Completed(tuple(arguments), 0, b"1000\n", "")
        if "partitions" in arguments:
            code = 0 if self.server is None else 1
            return Completed(tuple(arguments), code, b"", self.server or "")
        if "partition" in arguments:
            return Completed(tuple(arguments), 0 if self.partition else 1, (self.partition or "").encode(), "")
        if " show /data/" in arguments[-1] or " sums /data/" in arguments[-1]:  # a whole data set
            shown = SHIPPED / "digits" / "manifest.json" if " show /data/" in arguments[-1] else Path(os.devnull)
            return Completed(tuple(arguments), 0, shown.read_bytes(), "")
        host = arguments[list(arguments).index("--") + 1]
        if self.answers[host].get("down"):
            return Completed(tuple(arguments), 254, b"", "ssh: connect to host h2 port 22: No route to host\n")
        lines = [f"{key} {value}" for key, value in self.answers[host].items() if value is not None]
        return Completed(tuple(arguments), 0, "\n".join(lines).encode(), "")


def found(
    partition: str | None = PARTITION, server: str | None = None, pod: dict[str, Any] | None = None, **second: Any
) -> list[Problem]:
    cluster = cluster_of({**POD, **(pod or {})})
    job = Job(task="cifar10-resnet50", instances=2, ipus_per_replica=2, accumulation=8)
    request = Request(cluster, "cluster file pod.yaml", job, {}, plan("pod", cluster, job))
    context = Context(request, Project(Path(), ".", in_git=False), None, Hosts(second, partition, server))  # type: ignore[arg-type]
    return problems(context, Depth(thorough=True))


def test_nothing_is_wrong() -> None:
    assert found() == []


CASES: dict[str, tuple[dict[str, Any], str, str]] = {
    "unreachable": (
        {"down": "yes"},
        "host h2 can't be reached from login: ssh: connect to host h2 port 22: No route",
        "known host keys",
    ),
    "ssh": ({"no-ssh": "h1: Host key verification failed."}, "host h2 can't log in to h1: Host key", "known host keys"),
    "sdk": ({"sdk": None}, "there is no Poplar SDK in /sdk on host h2", "trainjob provision"),
    "sdk-version": (
        {"sdk": "poplar-ubuntu_20_04-3.1.0+7857"},
        "and sdk.version is 3.3.0",
        "Correct the wrong one",
    ),
    "different-sdk": (
        {"sdk": "poplar-ubuntu_20_04-3.3.1+1"},
        "all hosts must have the same SDK: host h1 has poplar-",
        "one SDK",
    ),
    "poprun": ({"poprun": "no"}, "no poprun on the PATH of host h2", "complete SDK"),
    "interpreter": ({"python": None, "interpreter": "no"}, "/venv/bin/python is not an interpreter", "sdk.venv"),
    "no-answer": ({"complete": None}, "host h2 can't be checked: exit code 0", "look"),
    "poptorch": ({"poptorch": None}, "of host h2 has no poptorch", "wheel"),
    "torch": ({"torch": "2.13.0"}, "is made for torch 2.0.1, and its virtualenv has torch 2.13.0", "torch==2.0.1"),
    "network": ({"network": ""}, "there is no network eno1 on host h2", "network.interface"),
    "runs-dir": (
        {"runs-dir": "read-only /runs"},
        "runs_dir /runs on host h2: you have no permission to write in /runs",
        "runs_dir",
    ),
    "disk": (
        {"runs-mb": "12"},
        "runs_dir /runs on host h2 has 12 MB free, and logs and checkpoints need 1,024 MB",
        "trainjob prune",
    ),
    "different-runs": (
        {"runs-dir": "folder 78"},
        "host h1 has folder number 77, host h2 has folder number 78",
        "share",
    ),
    "data": (
        {"data": "no"},
        "data set cifar10 is not prepared on host h2: there is no /data/cifar10/manifest.json",
        "trainjob data prepare cifar10",
    ),
    "different-data": ({"data": "99999999"}, "host h1 has checksum abcdef01, host h2 has checksum 99999999", "again"),
    "cache": ({"cache-mb": "12"}, "12 MB are left for executables in /cache on host h2", "2048 MB"),
    "memlock": ({"memlock": "8192"}, "a process may lock 8192 kB of memory on host h2", "unlimited"),
    "partition": ({"partition": None}, "partition p16 does not exist, or belongs to another user", "vipu.allocation"),
    "partition-state": ({"partition": "Size: 16\nState: PS_ERROR"}, "is in state PS_ERROR, and a run needs", "Reset"),
    "partition-size": ({"partition": "Size: 8\nState: PS_ACTIVE"}, "has 8 IPUs, and 8 replicas need 16", "fewer"),
    "vipu-server": ({"server": "deadline exceeded"}, "V-IPU server ctl does not answer: deadline", "vipu.server"),
}


def test_a_host_that_jobs_reach_as_another_user_cannot_read_the_run_directory() -> None:
    (problem,) = found(user="1001 ml")
    output = "jobs log in to host h2 as ml (user id 1001), and a run directory belongs to user id 1000: "
    assert (problem.code, problem.text) == ("runs-dir", f"{output}it can't be read there")


@each("code", CASES)
def test_each_problem_has_its_values_and_its_cure(code: str) -> None:
    changes, text, cure = CASES[code]
    problem = next(problem for problem in found(**changes) if problem.code == code)
    assert text in problem.text
    assert cure in problem.cure


def test_a_launch_host_out_of_reach_is_one_problem() -> None:
    (problem,) = found(server="down")
    assert problem.code == "unreachable"
    assert problem.text == "login is a name that nobody knows"


def test_what_poprun_may_do_itself_is_no_problem() -> None:
    vipu = {**POD["vipu"], "allocation": "all", "reset_partition": True, "update_partition": True}
    assert found(partition=None, pod={"vipu": vipu}) == []
    assert found(partition="Size: 8\nState: PS_ERROR", pod={"vipu": vipu}) == []


def test_what_several_hosts_lack_is_said_once() -> None:
    hosts = Hosts({}, PARTITION, None)
    for answer in hosts.answers.values():
        del answer["sdk"]
        answer["poprun"] = "no"
    cluster = cluster_of(POD)
    job = Job(task="cifar10-resnet50", instances=2, ipus_per_replica=2, accumulation=8)
    request = Request(cluster, "cluster file pod.yaml", job, {}, plan("pod", cluster, job))
    context = Context(request, Project(Path(), ".", in_git=False), None, hosts)  # type: ignore[arg-type]
    (problem,) = problems(context)
    assert problem.code == "sdk"
    assert problem.text == "there is no Poplar SDK in /sdk on hosts h1, h2: no poplar-*/enable.sh"


@pytest.mark.parametrize(
    ("second", "expected"),
    [
        ({}, []),
        ({"memlock": "8192"}, []),
        (
            {"memlock": "8192", "infiniband": "yes"},
            ["a process may not lock all of its memory on host h2, and InfiniBand locks all memory that it sends from"],
        ),
        ({"nofile": "256"}, ["a process may open 256 files on host h2, and data loaders and sockets need more"]),
        ({"nofile": "unlimited"}, []),
    ],
)
def test_the_limits_of_hosts_without_ipus(second: dict[str, str | None], expected: list[str]) -> None:
    cluster = cluster_of({"kind": "hosts", "hosts": "h[1-2]", "runs_dir": "/runs"})
    job = Job(command=["true"], instances=2)
    request = Request(cluster, "cluster file hosts.yaml", job, {}, plan("hosts", cluster, job))
    hosts: Any = Hosts({"nofile": "1024", **second}, None, None)
    listed = problems(Context(request, Project(Path(), ".", in_git=False), None, hosts), Depth(thorough=True))
    assert [problem.text for problem in listed if problem.code in ("memlock", "nofile")] == expected
