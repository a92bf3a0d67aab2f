"""`trainjob cluster init --site` and `cluster check --ask-controller` as a user types them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from trainjob.cli.site.cluster import app


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


def test_only_a_cluster_with_a_scheduler_can_be_asked(folder: Path) -> None:
    ended = typed("check", "local", "--ask-controller")
    assert (ended.exit_code, "local is of kind local" in ended.output) == (2, True)
