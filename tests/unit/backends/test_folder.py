"""A run directory is whole under its name, or not there at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.small_runs import RENDERED, refused
from tests.support.submit_cases import everything_below, write
from trainjob.backends import folder
from trainjob.backends.folder import create


def test_a_run_directory_is_whole(tmp_path: Path) -> None:
    paths = create(tmp_path / "deep/run", RENDERED, None, None)
    assert paths.folder == tmp_path / "deep/run"
    assert {path.name for path in paths.folder.iterdir()} == {"job.sh", "job.json", "code", "logs", "checkpoints"}
    assert paths.job_script.stat().st_mode & 0o777 == 0o755
    assert paths.job.stat().st_mode & 0o777 == 0o644
    assert os.listdir(tmp_path / "deep") == ["run"]


def test_every_run_carries_the_code_it_runs_and_nothing_else_of_ours(tmp_path: Path) -> None:
    paths = create(tmp_path / "run", RENDERED, None, None)
    packages = {path.name for path in (paths.code / "trainjob").iterdir()}
    assert packages == {"__init__.py", "contract", "data", "launch", "records", "train"}
    assert (paths.code / "trainjob/data/digits/manifest.json").is_file()
    assert [name for name in everything_below(paths.code) if "__pycache__" in name or name.endswith(".pyc")] == []


def test_an_empty_folder_can_be_taken(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    assert create(tmp_path / "run", RENDERED, None, None).job.is_file()


def test_a_relative_target_is_found_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert create(Path("run"), RENDERED, None, None).folder == tmp_path / "run"


# --- Refusals, each with its message, and with nothing left behind.


@pytest.mark.parametrize("kind", ["full folder", "file", "link to a folder", "broken link"])
def test_a_name_that_is_taken(tmp_path: Path, kind: str) -> None:
    write(tmp_path, "full/x")
    (tmp_path / "empty").mkdir()
    target = tmp_path / "run"
    {
        "full folder": lambda: write(target, "x"),
        "file": lambda: write(tmp_path, "run"),
        "link to a folder": lambda: target.symlink_to(tmp_path / "empty"),
        "broken link": lambda: target.symlink_to("nowhere"),
    }[kind]()
    before = everything_below(tmp_path)
    assert refused(target) == f"{target} already exists and is not an empty folder: choose another name"
    assert everything_below(tmp_path) == before


@pytest.mark.parametrize("target", [".", "../here", ""])
def test_the_working_folder_is_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert "already exists and is not an empty folder" in refused(Path(target))
    assert os.listdir(tmp_path) == ["here"]


@pytest.mark.parametrize("target", ["file/run", "file/deep/run"])
def test_a_file_in_the_path(tmp_path: Path, target: str) -> None:
    write(tmp_path, "file")
    message = (
        f"run directory {tmp_path / target} can't be created: a part of its path is a file. Set runs_dir to a folder"
    )
    assert refused(tmp_path / target) == message
    assert os.listdir(tmp_path) == ["file"]


def test_a_folder_of_somebody_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", str(tmp_path))

    monkeypatch.setattr(Path, "mkdir", denied)
    assert "can't be written (Permission denied): set runs_dir" in refused(tmp_path / "run")


def test_a_name_too_long_for_the_disk(tmp_path: Path) -> None:
    assert refused(tmp_path / ("x" * 300)).endswith(
        "can't be created: File name too long. Set runs_dir to another folder"
    )


def test_ctrl_c_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(folder, "write_rendered", interrupted)
    with pytest.raises(KeyboardInterrupt):
        create(tmp_path / "run", RENDERED, None, None)
    assert os.listdir(tmp_path) == []
