"""A run directory on disks that fill up, and what it carries."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.programs import ran
from tests.support.small_runs import RENDERED, refused
from tests.support.submit_cases import everything_below, write
from trainjob.backends.folder import FolderError, create
from trainjob.backends.project import find, select
from trainjob.contract.errors import UserError


@pytest.fixture
def small_disk(tmp_path: Path, needs: Callable[[str], Path]) -> Iterator[Path]:
    """Yield a folder on a disk of its own that holds next to nothing, and can be made read-only."""
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run([needs("mount"), "-t", "tmpfs", "-o", "size=64k", "tmpfs", disk], check=True)
    yield disk
    subprocess.run(["umount", disk], check=True)


def test_the_code_that_is_carried_imports_from_there(tmp_path: Path) -> None:
    paths = create(tmp_path / "run", RENDERED, None, None)
    where = "import trainjob.launch.main as launch; print(launch.__file__)"
    ended = ran([sys.executable, "-c", where], folder=paths.code, code=0)
    assert Path(ended.stdout.strip()).is_relative_to(paths.code)


def test_the_project_lies_in_the_code(tmp_path: Path) -> None:
    write(tmp_path, "p/src/train.py")
    project = find(tmp_path / "p/src", tmp_path / "p")
    paths = create(tmp_path / "run", RENDERED, project, select(project))
    assert everything_below(paths.project) == {"src/train.py"}


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


def test_a_project_file_that_cannot_be_read_is_not_blamed_on_the_run_directory(tmp_path: Path) -> None:
    write(tmp_path, "p/train.py")
    project = find(tmp_path / "p")
    selection = select(project)
    (tmp_path / "p/train.py").unlink()
    with pytest.raises(UserError, match=r"project file .* can't be read"):
        create(tmp_path / "runs/run", RENDERED, project, selection)
    assert os.listdir(tmp_path / "runs") == []
