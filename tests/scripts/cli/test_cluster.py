"""`trainjob cluster init --site` and `cluster check --ask-controller` as a user types them."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from trainjob.cli.plan.check import app as check_app
from trainjob.cli.site.cluster import app, init


def typed(*words: str) -> Any:
    return CliRunner().invoke(app, words)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_sites_file_has_its_name_and_names_what_the_user_adds(folder: Path) -> None:
    ended = typed("init", "--site", "lumi-g")
    assert ended.exit_code == 0
    assert [line.split(": ")[1] for line in ended.output.splitlines()[1:3]] == ["account", "runs_dir"]
    assert (folder / "clusters/lumi-g.yaml").exists()
    assert "directives.account, runs_dir" in typed("check", "lumi-g").output


def test_another_name_is_taken_and_none_at_all_is_refused(folder: Path) -> None:
    assert typed("init", "mine", "--site", "lumi-g").exit_code == 0
    assert (folder / "clusters/mine.yaml").exists()
    assert "give the NAME of the new cluster, or a --site" in typed("init").output
    assert "exclude each other" in typed("init", "--site", "lumi-g", "--from", "pod4").output


@pytest.fixture
def on_lumi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand on a login node whose Slurm is called as that of a public machine."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "scontrol").write_text('#!/bin/sh\necho "ClusterName             = lumi"\n')
    (programs / "scontrol").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("TRAINJOB_CLUSTER", raising=False)


@pytest.mark.usefixtures("on_lumi")
def test_the_file_of_a_public_machine_is_proposed_on_its_login_node(folder: Path) -> None:
    proposal = "this seems to be a login node of lumi-g (its Slurm's cluster is called lumi)"
    assert proposal in typed("init").output.replace("\n", " ")
    assert f"note: {proposal}" in typed("init", "mine").output
    assert proposal in typed("use").output
    assert "trainjob cluster init --site lumi-g, then trainjob cluster use lumi-g" in typed("use").output
    assert proposal not in typed("init", "--site", "lumi-g").output
    typed("use", "lumi-g")
    assert proposal not in typed("use").output
    assert (folder / "clusters/lumi-g.yaml").exists()


@pytest.mark.usefixtures("on_lumi")
def test_a_check_of_no_chosen_cluster_proposes_it_too() -> None:
    ended = CliRunner().invoke(check_app, ["--instances", "1", "--", "true"])
    assert "cluster local is the default, and this seems to be a login node of lumi-g" in ended.output
    named = CliRunner().invoke(check_app, ["--cluster", "local", "--instances", "1", "--", "true"])
    assert "login node" not in named.output


def test_without_a_cluster_a_draft_from_slurm_says_how_to_name_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for program, fails in (("sinfo", "DNS SRV lookup failed"), ("scontrol", "DNS SRV lookup failed")):
        (tmp_path / program).write_text(f"#!/bin/sh\necho '{fails}' >&2\nexit 1\n")
        (tmp_path / program).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    said = str(typed("init", "hpc", "--from-slurm").exception)
    assert "belongs to no cluster" in said
    assert "Name its login node: trainjob cluster init hpc --from-slurm --ssh LOGIN" in said
    assert "--site" in said
    # What it names by hand works.
    assert typed("init", "hpc").exit_code == 0


def test_a_budget_for_cpus_is_refused_with_what_works() -> None:
    ended = typed("accept", "local", "--budget", "2gpu-hours", "--dry-run")
    assert (ended.exit_code, "leave it out" in ended.output) == (2, True)
    assert typed("accept", "local", "--dry-run").exit_code == 0


def test_only_a_cluster_with_a_scheduler_can_be_asked(folder: Path) -> None:
    ended = typed("check", "local", "--ask-controller")
    assert (ended.exit_code, "local is of kind local" in ended.output) == (2, True)


def test_a_draft_from_slurm_asks_on_a_terminal_which_interpreter_jobs_have(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, str]] = []

    def prompt(text: str, default: str) -> str:
        asked.append((text, default))
        return "/shared/venv/bin/python"

    def drafted_text(*_: object) -> str:
        return f"kind: slurm\nnodes: {{count: 1, cpus: 4}}\npython: {_[-1]}\n"

    monkeypatch.setattr("sys.stdin", SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr("typer.prompt", prompt)
    monkeypatch.setattr("trainjob.machines.slurm.drafted.active_python", lambda _: "/home/me/venv/bin/python3")
    monkeypatch.setattr("trainjob.machines.slurm.drafted.text", drafted_text)
    monkeypatch.setattr("trainjob.check.slurm.test_only", lambda *_: None)
    init("hpc", site=None, source=None, from_slurm=True, ssh=None, partition=None, python=None)
    assert asked == [("Interpreter of the jobs, at the same path on every node", "/home/me/venv/bin/python3")]
    assert "python: /shared/venv/bin/python\n" in (folder / "clusters/hpc.yaml").read_text()
