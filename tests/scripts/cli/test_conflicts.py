"""Settings and flags that exclude each other: each command that reads them says so before anything runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from trainjob.cli.plan import plan
from trainjob.cli.prove import verify
from trainjob.cli.site import cluster
from trainjob.contract.errors import UserError

NODES = {"count": 4, "accelerator": "gpu", "accelerators": 4, "cpus": 8}
CONFLICTS: list[tuple[dict[str, Any], str]] = [
    ({"directives": {"gres": "gpu:4"}}, "directives.gres and request: gres both request accelerators"),
    ({"directives": {"nodes": 4}}, "directives.nodes is decided elsewhere"),
    ({"directives": {"partion": "gpu"}}, "directives.partion: sbatch has no option --partion"),
    ({"srun": {"export": "NONE"}}, "export"),
]


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "clusters").mkdir()
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    "command", [[plan.app, "--cluster", "bad"], [cluster.app, "check", "bad"]], ids=["plan", "check"]
)
@pytest.mark.parametrize(("keys", "message"), CONFLICTS, ids=[message for _, message in CONFLICTS])
def test_a_conflict_is_refused_before_anything_is_rendered(
    command: list[Any], keys: dict[str, Any], message: str
) -> None:
    Path("clusters/bad.yaml").write_text(json.dumps({"kind": "slurm", "nodes": NODES, **keys}))
    app, *words = command
    refused = CliRunner().invoke(app, words).exception
    assert isinstance(refused, UserError)
    assert message in refused.text


def test_a_file_whose_nodes_are_too_few_for_a_job_is_valid() -> None:
    limits = {"limits": {"min_nodes": 2, "max_nodes": 2}}
    Path("clusters/good.yaml").write_text(json.dumps({"kind": "slurm", "nodes": {**NODES, "cpus": 1}, **limits}))
    assert CliRunner().invoke(cluster.app, ["check", "good"]).exit_code == 0


@pytest.mark.parametrize("beside", [("--by", "kill"), ("--interruptions", "2")])
def test_stated_stops_leave_nothing_to_draw(beside: tuple[str, str]) -> None:
    words = ["--resume", "--task", "digits-cnn", "--stops", "kill@update:5", *beside]
    refused = CliRunner().invoke(verify.app, words)
    assert refused.exit_code == 2
    assert "--stops states every interruption: leave out --by and --interruptions" in refused.output


def test_a_script_resumes_with_its_own_number_of_instances_alone() -> None:
    Path("train.py").touch()
    refused = CliRunner().invoke(verify.app, ["--resume", "--other-instances", "2", "--", "python", "train.py"])
    assert refused.exit_code == 2
    assert "--other-instances is for --resume of a task" in refused.output
