"""What is wrong with a pod, found from what its hosts and V-IPU say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from trainjob.cluster.job import Job
from trainjob.cluster.models import CLUSTER, PodCluster
from trainjob.plan.build import plan
from trainjob.render.request import Request
from trainjob.submit.checking.problem import Problem
from trainjob.submit.poprun import checks
from trainjob.submit.process import CommandError, Completed

GOOD = {
    "sdk": "poplar-ubuntu_20_04-3.3.0+7857-b67b751185",
    "poprun": "yes",
    "venv": "yes",
    "torch": "2.0.1+cpu",
    "poptorch": "3.3.0+113432",
    "network": "eno1",
    "data": "abcdef0123",
    "cache_mb": "900000",
    "runs": "77",
    "memlock": "unlimited",
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
        self.answers = {"h1": dict(GOOD), "h2": {**GOOD, **second}}
        self.partition = partition
        self.server = server

    def run(self, arguments: Sequence[str], **_: Any) -> Completed:
        if list(arguments) == ["true"]:
            if self.server == "down":
                raise CommandError("login is a name that nobody knows")
            return Completed(tuple(arguments), 0, b"", "")
        if "partitions" in arguments:
            code = 0 if self.server is None else 1
            return Completed(tuple(arguments), code, b"", self.server or "")
        if "partition" in arguments:
            return Completed(tuple(arguments), 0 if self.partition else 1, (self.partition or "").encode(), "")
        host = arguments[list(arguments).index("--") + 1]
        if self.answers[host].get("down"):
            raise CommandError("ssh: connect to host h2 port 22: No route to host")
        lines = [f"{key}={value}" for key, value in self.answers[host].items() if value is not None]
        return Completed(tuple(arguments), 0, "\n".join(lines).encode(), "")


def found(
    partition: str | None = PARTITION, server: str | None = None, pod: dict[str, Any] | None = None, **second: Any
) -> list[Problem]:
    cluster = CLUSTER.validate_python({**POD, **(pod or {})})
    assert isinstance(cluster, PodCluster)
    job = Job(task="cifar10-resnet50", instances=2, ipus_per_replica=2, accumulation=8)
    request = Request(cluster, "cluster file pod.yaml", job, {}, plan("pod", cluster, job))
    return checks.problems(request, cluster, Hosts(second, partition, server))  # type: ignore[arg-type]


def test_nothing_is_wrong() -> None:
    assert found() == []


CASES: dict[str, tuple[dict[str, Any], str, str]] = {
    "unreachable": ({"down": "yes"}, "host h2 can't be asked: ssh: connect to host h2 port 22: No route", "known keys"),
    "ssh": ({"unreached": "h1: Host key verification failed."}, "host h2 can't log in to h1: Host key", "known keys"),
    "sdk": ({"sdk": None}, "host h2 has no Poplar SDK in /sdk", "trainjob provision"),
    "sdk-version": ({"sdk": "poplar-ubuntu_20_04-3.1.0+7857"}, "and sdk.version is 3.3.0", "Put the one right"),
    "different-sdk": ({"sdk": "poplar-ubuntu_20_04-3.3.1+1"}, "all hosts have the same SDK: h1 has poplar-", "one SDK"),
    "poprun": ({"poprun": None}, "host h2 has no poprun on PATH", "whole SDK"),
    "venv": ({"venv": None}, "host h2 has no virtualenv in /venv", "sdk.venv"),
    "poptorch": ({"poptorch": None}, "of host h2 has no poptorch", "wheel"),
    "torch": ({"torch": "2.13.0"}, "is made for torch 2.0.1, and its virtualenv has torch 2.13.0", "torch==2.0.1"),
    "network": ({"network": ""}, "host h2 has no network eno1", "network.interface"),
    "runs-dir": ({"runs": None}, "host h2 can't write to runs_dir /runs", "runs_dir"),
    "different-runs": ({"runs": "78"}, "h1 has folder number 77, h2 has folder number 78", "share"),
    "data": ({"data": None}, "host h2 has no data set cifar10 in /data", "trainjob data prepare cifar10"),
    "different-data": ({"data": "99999999"}, "h1 has checksum abcdef01, h2 has checksum 99999999", "anew"),
    "cache": ({"cache_mb": "12"}, "host h2 has 12 MB left for executables in /cache", "2048 MB"),
    "memlock": ({"memlock": "8192"}, "lets a process lock 8192 kB of memory", "unlimited"),
    "partition": ({"partition": None}, "partition p16 is not there, or another user's", "vipu.allocation"),
    "partition-state": ({"partition": "Size: 16\nState: PS_ERROR"}, "is in state PS_ERROR, and a run needs", "Reset"),
    "partition-size": ({"partition": "Size: 8\nState: PS_ACTIVE"}, "has 8 IPUs, and 8 replicas need 16", "fewer"),
    "vipu-server": ({"server": "deadline exceeded"}, "V-IPU server ctl gives no answer: deadline", "vipu.server"),
}


@pytest.mark.parametrize("code", CASES)
def test_each_problem_has_its_values_and_its_cure(code: str) -> None:
    changes, text, cure = CASES[code]
    problem = next(problem for problem in found(**changes) if problem.code == code)
    assert text in problem.text
    assert cure in problem.cure


def test_a_launch_host_out_of_reach_is_one_problem() -> None:
    (problem,) = found(server="down")
    assert problem.code == "launch-host"
    assert problem.text == "the launch host can't be asked: login is a name that nobody knows"


def test_what_poprun_may_do_itself_is_no_problem() -> None:
    vipu = {**POD["vipu"], "allocation": "all", "reset_partition": True, "update_partition": True}
    assert found(partition=None, pod={"vipu": vipu}) == []
    assert found(partition="Size: 8\nState: PS_ERROR", pod={"vipu": vipu}) == []
