"""Whose Python runs: a user's own command what the user's PATH names, or what the cluster file does."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.local_runs import Here

# Every rank writes down which of the interpreters below runs it.
WHOSE = 'import os; print("run by", os.environ.get("WHOSE"), flush=True)\n'


def interpreter(folder: Path, whose: str) -> Path:
    """Make an interpreter whose processes know `whose` it is."""
    program = folder / "bin" / "python"
    program.parent.mkdir(parents=True)
    program.write_text(f'#!/bin/sh\nWHOSE={whose} exec {shlex.quote(sys.executable)} "$@"\n')
    program.chmod(0o755)
    (program.parent / "python3").symlink_to("python")
    return program


@pytest.fixture
def activated(here: Here, tmp_path: Path) -> Here:
    """A user who has activated a virtualenv, which is not where trainjob is installed."""
    here.environ["PATH"] = f"{interpreter(tmp_path / 'venv', 'users').parent}:{here.environ['PATH']}"
    here.write("whose.py", WHOSE)
    return here


def submitted(here: Here, cluster: str) -> str:
    return here.run("submit", "--cluster", cluster, "--follow", "--", "python", "whose.py").stdout


def test_a_command_runs_by_the_users_python(activated: Here) -> None:
    assert "run by users" in submitted(activated, "local")


def test_python_of_the_cluster_file_comes_first(activated: Here, tmp_path: Path) -> None:
    named = interpreter(tmp_path / "other", "clusters")
    activated.write("mine.yaml", f"kind: local\npython: {named}\n")
    assert "run by clusters" in submitted(activated, "./mine.yaml")


def checked(here: Here, *words: str) -> Any:
    return here.json("check", *words)["interpreters"]


def test_check_names_the_interpreter_and_its_torch(activated: Here, tmp_path: Path) -> None:
    named = interpreter(tmp_path / "other", "clusters")
    activated.write("mine.yaml", f"kind: local\npython: {named}\n")
    (found,) = checked(activated, "--cluster", "local", "--", "python", "whose.py")
    assert (found["machines"], found["executable"]) == ("this machine", sys.executable)
    output = activated.run("check", "--cluster", "./mine.yaml").stdout
    assert f"this machine: {sys.executable} is Python {sys.version.split()[0]} with torch " in output


@pytest.mark.parametrize("named", [True, False], ids=["sdk.venv", "PATH"])
def test_a_pods_rehearsal_takes_the_virtualenv_of_the_sdk_where_it_is_here(
    activated: Here, tmp_path: Path, named: bool
) -> None:
    venv = interpreter(tmp_path / "sdk", "sdks").parent.parent if named else tmp_path / "not-on-this-machine"
    activated.write(
        "pod.yaml",
        "kind: ipu-pod\nipus: 4\nhosts: h1\nvipu: {server: ctl, partition: p4}\n"
        f"sdk: {{version: '3.3.0', path: {tmp_path}, venv: {venv}}}\n",
    )
    ended = activated.run("rehearse", "--cluster", "./pod.yaml", "--instances", "2", "--", "python", "whose.py")
    whose = "sdks" if named else "users"
    assert sorted(line for line in ended.stdout.splitlines() if "run by" in line) == [
        f"[{rank}] run by {whose}" for rank in range(2)
    ]


def test_a_rehearsals_interpreter_can_be_chosen(activated: Here, tmp_path: Path) -> None:
    chosen = interpreter(tmp_path / "other", "chosen")
    words = ("--cluster", "pod4", "--python", str(chosen), "--", "python", "whose.py")
    assert "[0] run by chosen" in activated.run("rehearse", *words).stdout
    refused = activated.run("rehearse", *words[:2], "--python", str(tmp_path / "none"), *words[4:], code=2).stderr
    assert "can't be run" in refused


FLOOR = """\
import sys, torch, poptorch
model = torch.nn.Linear(2, 1)
class WithLoss(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = model
    def forward(self, values):
        return poptorch.identity_loss(self.layer(values).sum(), "sum")
training = poptorch.trainingModel(WithLoss(), poptorch.Options(), poptorch.optim.SGD(model.parameters(), lr=0.1))
training(torch.ones(1, 2))
print("trained by", sys.version_info[:2], torch.__version__.split("+")[0])
"""


def test_a_pod_is_rehearsed_by_the_oldest_python_and_torch(here: Here, needs: Callable[[str], Path]) -> None:
    here.write("train.py", FLOOR)
    ended = here.run("rehearse", "--cluster", "pod4", "--python", str(needs("floor")), "--", "python", "train.py")
    assert "[0] trained by (3, 8) 1.10.0" in ended.stdout
