"""A run directory is whole under its name, or not there at all."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from submit_cases import everything_below, write

from trainjob.contract.errors import UserError
from trainjob.render.rendered import File, Rendered
from trainjob.submit import folder
from trainjob.submit.folder import FolderError, create
from trainjob.submit.project import find, select

RENDERED = Rendered(files={"job.sh": File(b"echo\n", 0o755), "job.json": File(b"{}\n", 0o644)}, script="job.sh")


@pytest.fixture
def small_disk(tmp_path: Path, needs: Callable[[str], Path]) -> Iterator[Path]:
    """Yield a folder on a disk of its own that holds next to nothing, and can be made read-only."""
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run([needs("mount"), "-t", "tmpfs", "-o", "size=64k", "tmpfs", disk], check=True)
    yield disk
    subprocess.run(["umount", disk], check=True)


def refused(target: Path) -> str:
    with pytest.raises(FolderError) as caught:
        create(target, RENDERED, None, None)
    return str(caught.value)


def test_a_run_directory_is_whole(tmp_path: Path) -> None:
    paths = create(tmp_path / "deep/run", RENDERED, None, None)
    assert paths.folder == tmp_path / "deep/run"
    assert {path.name for path in paths.folder.iterdir()} == {"job.sh", "job.json", "code", "logs", "checkpoints"}
    assert paths.job_script.stat().st_mode & 0o777 == 0o755
    assert paths.job.stat().st_mode & 0o777 == 0o644
    assert os.listdir(tmp_path / "deep") == ["run"]


def test_every_run_carries_the_code_it_runs_and_nothing_else_of_ours(tmp_path: Path) -> None:
    paths = create(tmp_path / "run", RENDERED, None, None)
    rooms = {path.name for path in (paths.code / "trainjob").iterdir()}
    assert rooms == {"__init__.py", "contract", "data", "train"}
    assert (paths.code / "trainjob/data/digits/manifest.json").is_file()
    assert [name for name in everything_below(paths.code) if "__pycache__" in name or name.endswith(".pyc")] == []


def test_the_code_that_is_carried_imports_from_there(tmp_path: Path) -> None:
    paths = create(tmp_path / "run", RENDERED, None, None)
    where = "import trainjob.train.launch as launch; print(launch.__file__)"
    ended = subprocess.run([sys.executable, "-c", where], cwd=paths.code, capture_output=True, text=True, check=True)
    assert Path(ended.stdout.strip()).is_relative_to(paths.code)


def test_the_project_lies_in_the_code(tmp_path: Path) -> None:
    write(tmp_path, "p/src/train.py")
    project = find(tmp_path / "p/src", tmp_path / "p")
    paths = create(tmp_path / "run", RENDERED, project, select(project))
    assert everything_below(paths.project) == {"src/train.py"}


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
    assert refused(target) == f"{target} is already there and not an empty folder: choose another one"
    assert everything_below(tmp_path) == before


@pytest.mark.parametrize("target", [".", "../here", ""])
def test_the_working_folder_is_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert "is already there and not an empty folder" in refused(Path(target))
    assert os.listdir(tmp_path) == ["here"]


@pytest.mark.parametrize("target", ["file/run", "file/deep/run"])
def test_a_file_in_the_path(tmp_path: Path, target: str) -> None:
    write(tmp_path, "file")
    message = f"run directory {tmp_path / target} can't be made: a part of its path is a file. Set runs_dir to a folder"
    assert refused(tmp_path / target) == message
    assert os.listdir(tmp_path) == ["file"]


def test_a_disk_that_is_full(small_disk: Path) -> None:
    message = refused(small_disk / "run")
    assert message.startswith(f"no space is left for run directory {small_disk / 'run'}: free some (`trainjob prune`)")
    assert list(small_disk.iterdir()) == []


def test_a_disk_that_fills_up_by_the_project(small_disk: Path, tmp_path: Path) -> None:
    write(tmp_path, "p/big.txt", text="x" * 5_000_000)
    subprocess.run(["mount", "-o", "remount,size=3m", small_disk], check=True)
    project = find(tmp_path / "p")
    with pytest.raises(FolderError, match="no space is left for run directory"):
        create(small_disk / "run", RENDERED, project, select(project))
    assert list(small_disk.iterdir()) == []


def test_a_disk_that_is_read_only(small_disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    message = refused(small_disk / "run")
    assert "can't be written (Read-only file system): set runs_dir to a folder that you may write" in message


def test_a_folder_of_somebody_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", str(tmp_path))

    monkeypatch.setattr(Path, "mkdir", denied)
    assert "can't be written (Permission denied): set runs_dir" in refused(tmp_path / "run")


def test_a_name_too_long_for_the_disk(tmp_path: Path) -> None:
    assert refused(tmp_path / ("x" * 300)).endswith("can't be made: File name too long")


def test_a_project_file_that_cannot_be_read_is_not_blamed_on_the_run_directory(tmp_path: Path) -> None:
    write(tmp_path, "p/train.py")
    project = find(tmp_path / "p")
    selection = select(project)
    (tmp_path / "p/train.py").unlink()
    with pytest.raises(UserError, match=r"project file .* can't be read"):
        create(tmp_path / "runs/run", RENDERED, project, selection)
    assert os.listdir(tmp_path / "runs") == []


def test_ctrl_c_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(folder, "write_rendered", interrupted)
    with pytest.raises(KeyboardInterrupt):
        create(tmp_path / "run", RENDERED, None, None)
    assert os.listdir(tmp_path) == []
