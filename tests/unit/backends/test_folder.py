"""A run directory is whole under its name, or not there at all."""

from __future__ import annotations

import errno
import os
import shutil
import struct
import sys
from importlib.util import MAGIC_NUMBER, cache_from_source, source_from_cache
from pathlib import Path

import pytest

from tests.support.small_runs import RENDERED, refused
from tests.support.submit_cases import everything_below, write
from tests.support.told_machine import ToldMachine
from trainjob.backends import folder
from trainjob.backends.folder import create
from trainjob.contract import package
from trainjob.contract.errors import UserError


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
    assert packages - {"__pycache__"} == {"__init__.py", "contract", "data", "launch", "records", "train"}
    assert (paths.code / "trainjob/data/digits/manifest.json").is_file()


def test_ranks_compile_nothing_of_it_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    code = create(tmp_path / "run", RENDERED, None, None).code
    compiled = [code / name for name in everything_below(code) if name.endswith(".pyc")]
    ours = {path for name in ("contract", "records", "launch") for path in (code / "trainjob" / name).rglob("*.py")}
    assert {Path(source_from_cache(path)) for path in compiled} == {code / "trainjob/__init__.py", *ours}
    for path in compiled:
        source = Path(source_from_cache(path)).stat()
        # By these, Python knows for what it was compiled.
        times = (int(source.st_mtime) & 0xFFFFFFFF, source.st_size & 0xFFFFFFFF)
        assert struct.unpack("<4sIII", path.read_bytes()[:16]) == (MAGIC_NUMBER, 0, *times)


@pytest.mark.parametrize("is_stale", [True, False], ids=["stale", "unreadable"])
def test_bytecode_that_python_would_not_read_is_made_anew_or_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_stale: bool
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    installed = shutil.copytree(package.folder(), tmp_path / "trainjob", ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(package, "folder", lambda: installed)
    kept = Path(cache_from_source(installed / "contract/clock.py"))
    kept.parent.mkdir()
    if is_stale:
        kept.write_bytes(b"of another source")
    else:
        kept.mkdir()  # root may read any file
    made = create(tmp_path / "run", RENDERED, None, None).code / "trainjob/contract/__pycache__" / kept.name
    assert made.is_file() == is_stale
    assert not is_stale or made.read_bytes().startswith(MAGIC_NUMBER)


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


# --- Written again, and refused where others may write.


def test_a_run_that_is_rendered_again_has_the_runtime_of_now(tmp_path: Path) -> None:
    paths = create(tmp_path / "run", RENDERED, None, None)
    ours = paths.code / "trainjob"
    (ours / "old.py").touch()
    for left in (".trainjob.part", ".trainjob.old"):
        (paths.code / left / "x").mkdir(parents=True)
    changed = RENDERED._replace(files={**RENDERED.files, "tasks/1/job.json": RENDERED.files["job.json"]})
    folder.write_again(paths, changed)
    assert not (ours / "old.py").exists()
    assert (ours / "launch").is_dir()
    assert sorted(os.listdir(paths.code)) == ["trainjob"]
    assert (paths.folder / "tasks/1/job.json").is_file()
    shutil.rmtree(ours)
    folder.write_again(paths, RENDERED)
    assert (ours / "launch").is_dir()


@pytest.mark.parametrize(("share", "mode"), [("none", 0o700), ("group", 0o750), ("all", 0o755)])
def test_only_whom_the_cluster_file_names_may_read_a_run(tmp_path: Path, share: str, mode: int) -> None:
    before = os.umask(0)
    try:
        paths = create(tmp_path / "run", RENDERED, None, None, share)
    finally:
        os.umask(before)
    assert paths.folder.stat().st_mode & 0o777 == mode
    assert paths.scheduler_log.stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (errno.ENOSPC, r"no space is left for run directory .*: free some \(`trainjob prune`\), or change runs_dir"),
        (errno.EDQUOT, "no space is left for run directory"),
        (errno.EROFS, r"can't be written \(Read-only file system\): set runs_dir to a folder that you may write"),
        (errno.EPERM, "can't be written"),
        (errno.ENOTDIR, "a part of its path is a file"),
        (errno.EIO, "can't be created: Input/output error. Set runs_dir to another folder"),
    ],
)
def test_a_disk_that_refuses_is_one_line_and_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, said: str
) -> None:
    def refuses(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(folder, "write_rendered", refuses)
    with pytest.raises(folder.FolderError, match=said):
        create(tmp_path / "run", RENDERED, None, None)
    assert os.listdir(tmp_path) == []


def test_a_run_directory_is_used_only_where_nobody_else_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = tmp_path / "run"
    with pytest.raises(UserError, match=r"run can't be read: No such file or directory: `trainjob list`"):
        folder.refuse_foreign(mine)
    mine.mkdir(mode=0o755)
    folder.refuse_foreign(mine)
    for mode in (0o775, 0o757):
        mine.chmod(mode)
        with pytest.raises(folder.ForeignRunError, match=f"has mode 0{mode:o}: others can change what it executes"):
            folder.refuse_foreign(mine)
    mine.chmod(0o755)
    (tmp_path / "link").symlink_to(mine)
    with pytest.raises(folder.ForeignRunError, match="is a link, and a run is used only under its own path"):
        folder.refuse_foreign(tmp_path / "link")
    uid = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: 4242424)
    with pytest.raises(folder.ForeignRunError, match=rf"belongs to \w+ \(uid {uid}\), and you are uid 4242424"):
        folder.refuse_foreign(mine)


def test_what_others_can_have_put_into_a_run_is_named() -> None:
    machine = ToldMachine()
    folder.refuse_foreign_content(machine, "/r/abcd")
    assert machine.calls[0][-1] == "/r/abcd"
    for answer, said in ((b"a link\nb\n", "holds what others can have put there: a link; b"), (b"", "it says why")):
        machine.answers = lambda _, answer=answer: (1, answer)  # type: ignore[misc]
        with pytest.raises(folder.ForeignRunError, match=rf"run directory /r/abcd on pod .*{said}"):
            folder.refuse_foreign_content(machine, "/r/abcd")
