"""`submit` verifies what `check` does, and says so on the command line before there is a run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.support.local_runs import Here
from trainjob.cli.plan import check
from trainjob.contract.errors import Problem
from trainjob.requests import submission


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--set", "widht=3"], "task digits-cnn has no option widht: did you mean width? It has width"),
        (["--set", "width=wide"], "option width of task digits-cnn takes int and was given 'wide'"),
        (
            ["--optimizer", "mine:O"],
            "optimizer mine:O can't be imported by python3 on this machine: the optimizer's mod",
        ),
        (["--task", "mine:T"], "task mine:T can't be imported by python3 on this machine: the task's module mine is"),
        (
            ["--", "python3", "-m", "nobodys"],
            "python3 on this machine has no module nobodys, and neither has",
        ),
    ],
)
def test_refused_before_there_is_a_run(here: Here, words: list[str], why: str) -> None:
    assert why in here.run("submit", *words, code=1).stderr
    assert here.json("list") == []


@pytest.mark.imports_torch
def test_a_model_without_units_is_refused_where_they_are_needed(here: Here) -> None:
    here.write(
        "one.py",
        """
from torch import nn

class One:
    def build_model(self):
        return nn.Sequential(nn.Linear(4, 3))

    def open_data(self, place):
        raise NotImplementedError

    def loss(self, outputs, targets):
        raise NotImplementedError
""",
    )
    job = ("submit", "--task", "one:One", "--samples", "64", "--micro-batch", "4", "--instances", "2")
    for words in (["--engine", "fsdp"], ["--recompute"]):
        refused = here.run(*job, *words, code=1).stderr
        assert "task one:One: the model has no units to shard or recompute" in refused
        assert 'Name them in the task: shard_units = ["blocks.*"]' in refused
    assert here.json("list") == []


def test_without_checks_the_run_itself_fails(here: Here) -> None:
    refused = here.run("submit", "--", "sh", "nowhere.sh", code=1).stderr
    assert "nowhere.sh does not exist in" in refused
    assert here.json("list") == []
    here.run("submit", "--no-check", "--follow", "--", "sh", "nowhere.sh", code=1)
    assert [run["state"] for run in here.json("list")] == ["FAILED"]


def test_check_reports_what_submit_refuses(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    late = Problem("checkpoint-after-limit", "a checkpoint took up to 70 s", "Set margin_s")
    monkeypatch.setattr(submission, "find_problems", lambda *_: [late])
    monkeypatch.chdir(tmp_path)
    ended = CliRunner().invoke(check.app, ["--cluster", "slurm-gpu", "--task", "digits-cnn", "--json"])
    assert ended.exit_code == 1
    assert json.loads(ended.stdout)["problems"] == [late.as_json()]
