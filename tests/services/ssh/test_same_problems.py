"""The same fault is the same problem, in the same words, on this machine, behind ssh, and on a pod."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.support.login_node import disconnect
from tests.support.pod_site import PodSite, pod_site
from tests.support.programs import bare_python
from tests.support.submit_cases import write
from trainjob.backends.project import find, select
from trainjob.check.checks import problems
from trainjob.check.context import Context, Depth
from trainjob.cluster.job import Job
from trainjob.contract.errors import Problem
from trainjob.data.manifest import SHIPPED
from trainjob.kinds.table import cluster_of
from trainjob.machines.access import HERE
from trainjob.machines.ssh.machine import SshMachine
from trainjob.planning.build import plan
from trainjob.render.request import Request

TASK = "class T:\n    def build_model(self): ...\n    def open_data(self, place): ...\n    def loss(self, a, b): ...\n"
KINDS = ("local", "slurm", "ipu-pod")


class Place(NamedTuple):
    """The folders of one user, and a login node."""

    site: PodSite
    project: Path
    login: SshMachine

    def found(self, kind: str, changes: dict[str, Any], job: dict[str, Any]) -> list[Problem]:
        cluster = cluster_of(self.cluster(kind, changes))
        asked = Job.of({"instances": 1, **job})
        project = find(self.project)
        request = Request(cluster, "cluster file x.yaml", asked, {}, plan("x", cluster, asked), project.start)
        context = Context(request, project, select(project), HERE if kind == "local" else self.login)
        # How much memory may be locked is a limit of the account that runs the tests.
        return [problem for problem in problems(context, Depth(thorough=True)) if problem.code != "memlock"]

    def cluster(self, kind: str, changes: dict[str, Any]) -> dict[str, Any]:
        changes = dict(changes)
        python = changes.pop("python", None)
        venv = str(self.site.venv) if python is None else str(Path(python).parent.parent)
        own: dict[str, Any] = {
            "local": {"python": python or sys.executable},
            "slurm": {
                "python": python or sys.executable,
                "nodes": {"count": 1, "cpus": 4},
                "directives": {"partition": "cpu"},
            },
            "ipu-pod": {
                "ipus": 4,
                "hosts": "pod-host1",
                "vipu": {"server": "ctl", "allocation": "default"},
                "sdk": {"version": "3.3.0", "path": str(self.site.sdk), "venv": venv},
            },
        }[kind]
        return {"kind": kind, "runs_dir": str(self.site.runs), **own, **changes}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, needs: Callable[[str], Path]) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("place")
    project = folder / "project"
    write(project, "mine.py", text=TASK)
    write(project, "broken.py", text="import no_such_module\n")
    with pod_site(folder, needs("sshd")) as site, pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", site.environ["PATH"])
        # A login node's Slurm belongs to a cluster. A check asks no controller.
        write(folder / "vipu-bin", "sinfo", text="#!/bin/sh\necho slurm 23.11.4\n")
        (folder / "vipu-bin" / "sinfo").chmod(0o755)
        login = SshMachine("login")
        yield Place(site, project, login)
        disconnect()


def data_set(folder: Path, *, is_damaged: bool) -> str:
    """Make a data set of one byte an image, for its files' sums alone; return its data_dir."""
    target = folder / f"data-{is_damaged}" / "cifar10"
    target.mkdir(parents=True, exist_ok=True)
    files = {}
    for name in ("images", "labels"):
        (target / f"{name}.bin").write_bytes(b"other" if is_damaged and name == "images" else name.encode())
        digest = sha256(name.encode()).hexdigest()
        files[name] = {"file": f"{name}.bin", "bytes": len(name), "sha256": digest}
    split = {"samples": 1, "files": files}
    fields = json.loads((SHIPPED / "digits" / "manifest.json").read_text())
    (target / "manifest.json").write_text(
        json.dumps({**fields, "name": "cifar10", "splits": {"train": split, "test": split}})
    )
    return str(target.parent)


def secrets(folder: Path, text: str, mode: int) -> str:
    path = folder / f"secrets-{mode:o}-{len(text)}"
    path.write_text(text)
    path.chmod(mode)
    return str(path)


TRUE = {"command": ["true"]}  # no interpreter imports torch for it
CIFAR = {"task": "cifar10-resnet50", "ipus_per_replica": 1}
Fault = Callable[[Path], tuple[dict[str, Any], dict[str, Any]]]
# code, and a part of the text -> what is changed in the cluster file, and in the job
FAULTS: dict[tuple[str, str], Fault] = {
    ("interpreter", "is not an interpreter that can be started"): lambda _: ({"python": "/nowhere/bin/python"}, {}),
    ("torch", "has no torch, which a task needs"): lambda at: (
        {"python": str(bare_python(at / "bare/bin/python"))},
        {},
    ),
    ("data", "is not prepared on"): lambda at: ({"data_dir": str(at / "none")}, CIFAR),
    ("data", "no data_dir"): lambda _: ({}, CIFAR),
    ("data", "is not the file that was prepared"): lambda at: ({"data_dir": data_set(at, is_damaged=True)}, CIFAR),
    ("script", "nowhere.sh does not exist in"): lambda _: ({}, {"command": ["sh", "nowhere.sh"]}),
    ("command", "is not a program that can be started"): lambda _: ({}, {"command": ["no-such-program"]}),
    ("command", "is not an executable file in"): lambda _: ({}, {"command": ["./mine.py"]}),
    ("module", "has no module nobodys"): lambda _: ({}, {"command": [sys.executable, "-m", "nobodys.train"]}),
    ("secrets", "does not exist"): lambda at: ({"secrets_file": str(at / "none")}, TRUE),
    ("secrets", "has mode 0644"): lambda at: ({"secrets_file": secrets(at, "A=1\n", 0o644)}, TRUE),
    ("secrets", "line 2: expected NAME=VALUE"): lambda at: ({"secrets_file": secrets(at, "A=1\nno\n", 0o600)}, TRUE),
    ("runs-dir", "is not a folder"): lambda at: ({"runs_dir": f"{secrets(at, '', 0o600)}/runs"}, TRUE),
    ("init-from", "init_from: /nowhere/x is not on"): lambda _: ({}, {"init_from": "/nowhere/x"}),
    ("task", "module mine (mine.py) has no U: it has T"): lambda _: ({}, {"task": "mine:U"}),
    ("task", "No module named 'no_such_module'"): lambda _: ({}, {"task": "broken:T"}),
    ("task", "task digits-cnn has no option widht: did you mean width?"): lambda _: ({}, {"set": {"widht": 3}}),
    ("task", "option width of task digits-cnn takes int"): lambda _: ({}, {"set": {"width": "wide"}}),
    ("prologue", "is not valid bash: line 2: "): lambda _: ({"prologue": ["if true"]}, TRUE),
}


# Each makes three interpreters import torch, and its like has been found in the same way.
LONGER = ("no data_dir", "is not the file", "No module named", "task digits-cnn has no", "option width of")


@pytest.mark.parametrize(
    "fault",
    [pytest.param(one, marks=pytest.mark.full if one[1].startswith(LONGER) else ()) for one in FAULTS],
    ids=lambda fault: fault[1][:40],
)
def test_one_fault_is_one_problem_everywhere(place: Place, tmp_path: Path, fault: tuple[str, str]) -> None:
    changes, job = FAULTS[fault](tmp_path)
    output = {}
    for kind in KINDS:
        (problem,) = place.found(kind, changes, job)
        assert problem.code == fault[0], (kind, problem)
        assert fault[1] in problem.text, (kind, problem)
        output[kind] = problem.text
        for name in ("this machine", "login", "host pod-host1"):
            output[kind] = output[kind].replace(f" {name}", " M")
        output[kind] = output[kind].replace(f"{place.site.venv}/bin/python", sys.executable)
    assert len(set(output.values())) == 1, output


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "job",
    [
        {},
        {"task": "mine:T"},
        pytest.param({"set": {"width": 8}}, marks=pytest.mark.full),
        {"command": ["sh", "mine.py"]},
        {"command": [sys.executable, "-m", "json.tool"]},
        {"command": [sys.executable, "-m", "mine"]},
    ],
    ids=str,
)
def test_a_job_that_can_run_has_no_problem(place: Place, kind: str, job: dict[str, Any]) -> None:
    assert place.found(kind, {}, job) == []


def test_one_call_for_all_facts_and_one_for_slurm_are_enough_for_a_login_node(place: Place, tmp_path: Path) -> None:
    place.login.run(["true"])  # whoever comes first, or late, opens the connection
    calls = tmp_path / "calls"
    real = (place.site.node.bin / "ssh").read_text()
    place.site.node.stand_in("ssh", f"echo call >>{calls}\n" + real.partition("\n")[2])
    try:
        assert place.found("slurm", {"secrets_file": secrets(tmp_path, "A=1\n", 0o600)}, {"task": "mine:T"}) == []
    finally:
        (place.site.node.bin / "ssh").write_text(real)
    assert calls.read_text().splitlines() == ["call", "call"]
    assert os.access(place.site.node.bin / "ssh", os.X_OK)


def test_an_sdk_that_is_missing_is_said_once_and_ssh_is_not_blamed(place: Place) -> None:
    sdk = {"version": "3.3.0", "path": "/nowhere/sdk", "venv": str(place.site.venv)}
    (first, *others) = place.found("ipu-pod", {"sdk": sdk}, {"command": ["true"]})
    assert (first.code, others) == ("sdk", [])
    assert first.text == "there is no Poplar SDK in /nowhere/sdk on host pod-host1: no poplar-*/enable.sh"


def test_an_sdk_that_ends_the_shell_leaves_one_line(place: Place) -> None:
    enable = place.site.sdk / "poplar-3.3.0" / "enable.sh"
    text = enable.read_text()
    enable.write_text("echo no licence >&2; exit 3\n")
    try:
        (problem,) = place.found("ipu-pod", {}, {})
    finally:
        enable.write_text(text)
    assert problem.code == "no-answer"
    assert problem.text == "host pod-host1 can't be checked: exit code 3"
