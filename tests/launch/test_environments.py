"""A Python environment is brought to a node's own disk once, and ranks run in it."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import tarfile
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.programs import ran
from tests.support.waiting import until
from trainjob.contract.environment import Ranking
from trainjob.contract.paths import RunPaths
from trainjob.launch import environments, host
from trainjob.launch.environments import Copy, NoEnvironmentError
from trainjob.records import software

ALONE = Ranking(0, 0, 1, 1)
FIRST, SECOND = Ranking(0, 0, 2, 1), Ranking(1, 0, 2, 1)  # of two nodes
LOCK = "version = 1\nrequires-python = '>=3.8'\n"


def module_of(folder: Path) -> Path:
    return next(folder.glob("lib/python*/site-packages")) / "hello.py"


@pytest.fixture
def venv(tmp_path: Path) -> Path:
    """Return a virtualenv with a module, and a program that runs in it."""
    folder = tmp_path / "shared" / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    module_of(folder).write_text("TEXT = 'first'\n")
    for name, first in (
        ("tell", f"#!{folder}/bin/python3"),
        ("far", f"#!/bin/sh\n'''exec' {folder}/bin/python \"$0\""),
    ):
        (folder / "bin" / name).write_text(f"{first} \"$@\"\n' '''\n" if name == "far" else f"{first}\n")
        with (folder / "bin" / name).open("a") as program:
            program.write("import hello, sys; print(hello.__file__, hello.TEXT, sys.prefix)\n")
        (folder / "bin" / name).chmod(0o755)
    return folder


def packed(folder: Path, name: str = "env.tar", *, above: bool = False) -> Path:
    archive = folder.parent / name
    inside = [str(folder.parent), folder.name] if above else [str(folder), "."]
    subprocess.run(["tar", "-cf", str(archive), "-C", *inside], check=True)
    return archive


def brought(tmp_path: Path, ranking: Ranking = ALONE, disk: str = "disk", **stated: str) -> Copy:
    for name in ("run", disk):
        (tmp_path / name).mkdir(exist_ok=True)
    asked = {"folder": str(tmp_path / disk), **stated}
    return environments.on_this_node(asked, RunPaths(tmp_path / "run"), tmp_path / "project", ranking)


def reported(copy: Copy, name: str = "tell") -> list[str]:
    ended = ran([str(copy.folder / "bin" / name)], code=0)
    return ended.stdout.split()


@pytest.mark.parametrize("above", [False, True])
def test_what_an_archive_has_runs_from_the_nodes_disk(tmp_path: Path, venv: Path, above: bool) -> None:
    copy = brought(tmp_path, archive=str(packed(venv, above=above)))
    assert copy.folder.is_relative_to(tmp_path / "disk")
    for name in ("tell", "far"):
        assert reported(copy, name) == [str(module_of(copy.folder)), "first", str(copy.folder)]
    variables = copy.variables({"PATH": "/usr/bin"})
    assert variables["PATH"] == f"{copy.folder}/bin:/usr/bin"
    assert variables["VIRTUAL_ENV"] == str(copy.folder)


def test_it_is_made_once_and_a_newer_one_replaces_it(
    tmp_path: Path, venv: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    first = brought(tmp_path, archive=str(packed(venv)))
    assert brought(tmp_path, archive=str(venv.parent / "env.tar")).folder == first.folder
    assert capfd.readouterr().err.count("trainjob: the environment of") == 1
    module_of(venv).write_text("TEXT = 'second'\n")
    second = brought(tmp_path, archive=str(packed(venv)))
    assert (reported(second)[1], reported(first)[1]) == ("second", "first")  # a run still uses the first
    os.close(first.lock)
    module_of(venv).write_text("TEXT = 'the third'\n")
    brought(tmp_path, archive=str(packed(venv)))
    assert (first.folder.exists(), second.folder.exists()) == (True, True)  # the other start of the first lives on


def test_what_nobody_uses_is_removed(tmp_path: Path, venv: Path) -> None:
    first = brought(tmp_path, archive=str(packed(venv)))
    os.close(first.lock)
    module_of(venv).write_text("TEXT = 'second'\n")
    brought(tmp_path, archive=str(packed(venv)))
    assert not first.folder.exists()


def test_of_a_folder_the_first_node_packs_what_the_others_unpack(tmp_path: Path, venv: Path) -> None:
    found: list[Copy] = []
    other = threading.Thread(target=lambda: found.append(brought(tmp_path, SECOND, "disk-2", venv=str(venv))))
    other.start()
    until(lambda: list(tmp_path.glob("disk-2/*.lock")) != [], "the second node to wait for what is packed")
    assert found == []
    first = brought(tmp_path, FIRST, "disk-1", venv=str(venv))
    other.join(60)
    assert reported(first)[0] == str(module_of(first.folder))
    assert reported(found[0]) == [str(module_of(found[0].folder)), "first", str(found[0].folder)]
    assert len(list((tmp_path / "run").glob("environment-*.tar"))) == 1


def test_other_ranks_of_a_node_wait_for_its_first(tmp_path: Path, venv: Path) -> None:
    found: list[Copy] = []
    archive = str(packed(venv))
    other = threading.Thread(target=lambda: found.append(brought(tmp_path, Ranking(1, 1, 2, 2), archive=archive)))
    other.start()
    until(lambda: list((tmp_path / "disk").glob("*.lock")) != [], "the other rank to wait")
    assert found == []
    mine = brought(tmp_path, Ranking(0, 0, 2, 2), archive=archive)
    other.join(60)
    assert [one.folder for one in found] == [mine.folder]


def test_a_copy_that_was_cut_off_is_made_again(tmp_path: Path, venv: Path) -> None:
    copy = brought(tmp_path, archive=str(packed(venv)))
    os.close(copy.lock)
    (copy.folder.parent / "complete").unlink()
    module_of(copy.folder).unlink()
    assert reported(brought(tmp_path, archive=str(venv.parent / "env.tar")))[1] == "first"


def without(tmp_path: Path, *programs: str) -> str:
    """Return a PATH that has the programs of this one but those."""
    folder = tmp_path / "programs"
    folder.mkdir()
    for directory in os.environ["PATH"].split(os.pathsep):
        for path in Path(directory).glob("*"):
            if path.name not in programs and not (folder / path.name).exists():
                (folder / path.name).symlink_to(path)
    return str(folder)


def image_of(folder: Path, needs: Callable[[str], Path]) -> Path:
    image = folder.parent / "env.sqsh"
    subprocess.run([str(needs("squashfs")), str(folder), str(image), "-quiet", "-no-progress"], check=True)
    return image


def test_an_image_of_squashfs_is_unpacked(tmp_path: Path, venv: Path, needs: Callable[[str], Path]) -> None:
    copy = brought(tmp_path, archive=str(image_of(venv, needs)))
    assert reported(copy) == [str(module_of(copy.folder)), "first", str(copy.folder)]


def test_an_image_of_squashfs_is_copied_from_a_mount(
    tmp_path: Path, venv: Path, needs: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    image = image_of(venv, needs)
    needs("squashfuse")
    monkeypatch.setenv("PATH", without(tmp_path, "unsquashfs"))
    copy = brought(tmp_path, archive=str(image))
    assert reported(copy) == [str(module_of(copy.folder)), "first", str(copy.folder)]
    assert str(tmp_path) not in Path("/proc/mounts").read_text()


def test_an_image_of_squashfs_without_a_program_for_it_is_refused(
    tmp_path: Path, venv: Path, needs: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    image = image_of(venv, needs)
    monkeypatch.setenv("PATH", without(tmp_path, "unsquashfs", "squashfuse"))
    with pytest.raises(NoEnvironmentError, match="neither unsquashfs nor squashfuse") as caught:
        brought(tmp_path, archive=str(image))
    assert "install squashfs-tools on every node, or pack a tar file" in str(caught.value)


def test_what_is_missing_is_named_with_its_cure(tmp_path: Path, venv: Path) -> None:
    (tmp_path / "project").mkdir()
    empty = packed(venv.parent / "venv/bin", "wrong.tar")
    cases = [
        ({"archive": "/nowhere/env.tar"}, "/nowhere/env.tar: No such file or directory"),
        ({"venv": str(tmp_path)}, "pyvenv.cfg: No such file or directory"),
        ({"archive": str(empty)}, "wrong.tar has no bin/python that runs on"),
        ({"archive": str(venv / "pyvenv.cfg")}, "tar can't unpack"),
        ({"uv": "pyproject.toml"}, "uv.lock does not exist: run `uv lock`, and add uv.lock to git"),
    ]
    for stated, text in cases:
        with pytest.raises(NoEnvironmentError) as caught:
            brought(tmp_path, ALONE, "disk", **stated)
        assert text in str(caught.value)
    with pytest.raises(NoEnvironmentError, match=r"environment\.folder"):
        environments.on_this_node(
            {"archive": str(empty), "folder": "/nowhere"}, RunPaths(tmp_path / "run"), tmp_path, ALONE
        )


def test_a_folder_of_another_user_is_refused(tmp_path: Path, venv: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = str(packed(venv))
    target = brought(tmp_path, archive=archive).folder.parent
    own = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: own + 1)
    target.rename(str(target).replace(f"-{own}-", f"-{own + 1}-"))
    with pytest.raises(NoEnvironmentError, match="belongs to another user"):
        brought(tmp_path, archive=archive)


def linked_archive(venv: Path) -> dict[str, str]:
    """An archive in which the environment is a link, as sites keep theirs."""
    (venv.parent / "torch").symlink_to(venv)
    subprocess.run(["tar", "-cf", str(venv.parent / "env.tar"), "-C", str(venv.parent), "torch"], check=True)
    return {"archive": str(venv.parent / "env.tar")}


def linked_folder(venv: Path, name: str) -> Path:
    """A virtualenv whose `name` is a link to that of another."""
    other = venv.with_name("other")
    shutil.copytree(venv, other, symlinks=True)
    shutil.rmtree(other / name)
    (other / name).symlink_to(venv / name)
    return other


LINKED: dict[str, Callable[[Path], dict[str, str]]] = {
    "archive of a link": linked_archive,
    "archive with a link for bin": lambda venv: {"archive": str(packed(linked_folder(venv, "bin")))},
    "virtualenv with a link for bin": lambda venv: {"venv": str(linked_folder(venv, "bin"))},
    "virtualenv with a link for lib": lambda venv: {"venv": str(linked_folder(venv, "lib"))},
}


@pytest.mark.parametrize("made", LINKED.values(), ids=LINKED)
def test_nothing_is_written_through_a_link(tmp_path: Path, venv: Path, made: Callable[[Path], dict[str, str]]) -> None:
    before = {path: path.read_bytes() for path in venv.rglob("*") if path.is_file() and not path.is_symlink()}
    with pytest.raises(NoEnvironmentError, match="is a link to"):
        brought(tmp_path, ALONE, "disk", **made(venv))
    assert {path: path.read_bytes() for path in before} == before


def test_a_program_with_a_second_name_elsewhere_is_replaced_and_not_changed(tmp_path: Path, venv: Path) -> None:
    cache, copy = tmp_path / "cache", tmp_path / "copy"
    shutil.copytree(venv, copy, symlinks=True)
    os.link(copy / "bin/tell", cache)  # as uv links files of its cache
    before = cache.read_bytes()
    environments.use_own_interpreter(copy / "bin")
    assert cache.read_bytes() == before
    assert (copy / "bin/tell").read_bytes().startswith(b"#!%s/bin/python" % os.fsencode(copy))
    assert (copy / "bin/tell").stat().st_mode & 0o111


@pytest.mark.parametrize("kind", ["archive", "venv"])
def test_a_program_is_changed_through_no_link_that_waits_beside_it(tmp_path: Path, venv: Path, kind: str) -> None:
    other = venv.with_name("other")
    shutil.copytree(venv, other, symlinks=True)
    for name in (".tell.part", "tell.part", "tell.tmp", ".tell.tmp"):
        (other / "bin" / name).symlink_to(venv / "bin/tell")
    before = (venv / "bin/tell").read_bytes()
    copy = brought(tmp_path, ALONE, "disk", **{kind: str(packed(other) if kind == "archive" else other)})
    assert reported(copy)[1] == "first"
    assert (venv / "bin/tell").read_bytes() == before
    assert {path.name for path in (copy.folder / "bin").iterdir()} == {path.name for path in (other / "bin").iterdir()}


def test_the_environment_of_an_archive_is_found_among_notes_and_two_are_refused(tmp_path: Path, venv: Path) -> None:
    for name in ("._env", "README", "zzz"):
        (venv.parent / name).touch()
    (venv.parent / "docs").mkdir()
    archive = venv.parent / "env.tar"
    for names, said in (("._env README docs venv zzz", ""), ("README other venv", "has several environments: other, ")):
        subprocess.run(["tar", "-cf", archive, "-C", venv.parent, *names.split()], check=True)
        if said:
            with pytest.raises(NoEnvironmentError, match=said):
                brought(tmp_path, archive=str(archive))
        else:
            assert reported(brought(tmp_path, archive=str(archive)))[1] == "first"
            shutil.copytree(venv, venv.with_name("other"), symlinks=True)


def test_an_archive_brings_no_rights_no_devices_and_no_owners(tmp_path: Path, venv: Path) -> None:
    archive = packed(venv)
    with tarfile.open(archive, "a") as stream:
        for name, kind in (("bin/pipe", tarfile.FIFOTYPE), ("bin/zero", tarfile.CHRTYPE), ("bin/su", tarfile.REGTYPE)):
            facts = tarfile.TarInfo(f"./{name}")
            facts.type, facts.mode, facts.uid, facts.gid, facts.devmajor, facts.devminor = kind, 0o6755, 1, 1, 1, 5
            if kind != tarfile.CHRTYPE or os.getuid() == 0:
                stream.addfile(facts)
    copy = brought(tmp_path, archive=str(archive))
    everything = [path.lstat() for path in (copy.folder, *copy.folder.rglob("*"))]
    assert {stat.S_IFMT(one.st_mode) for one in everything} == {stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK}
    assert {one.st_uid for one in everything} == {os.getuid()}
    assert not any(one.st_mode & 0o7000 for one in everything)
    assert reported(copy)[1] == "first"


def test_a_virtualenv_with_a_pipe_is_copied_without(tmp_path: Path, venv: Path) -> None:
    os.mkfifo(venv / "bin/pipe")
    (venv / "bin/tell").chmod(0o4755)
    copy = brought(tmp_path, venv=str(venv))
    assert not (copy.folder / "bin/pipe").exists()
    assert stat.S_IMODE((copy.folder / "bin/tell").stat().st_mode) == 0o755
    assert module_of(copy.folder).stat().st_mtime_ns == module_of(venv).stat().st_mtime_ns


def test_a_pipe_for_an_archive_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "env.tar")
    with pytest.raises(NoEnvironmentError, match=r"env\.tar is not a file"):
        brought(tmp_path, archive=str(tmp_path / "env.tar"))


@pytest.mark.parametrize("what", ["pipe", "link", "another user's"])
def test_a_lock_of_somebody_else_is_named_and_not_waited_for(tmp_path: Path, venv: Path, what: str) -> None:
    archive = str(packed(venv))
    made = brought(tmp_path, archive=archive)
    os.close(made.lock)
    lock = Path(f"{made.folder.parent}.lock")
    lock.unlink()
    if what == "pipe":
        os.mkfifo(lock)
    elif what == "link":
        lock.symlink_to(tmp_path / "elsewhere")
    elif os.getuid() == 0:
        lock.touch()
        os.chown(lock, 1, 1)
    else:
        pytest.skip("only root gives a file away")
    with pytest.raises(NoEnvironmentError, match=rf"can't be copied to .*{lock.name}"):
        brought(tmp_path, archive=archive)
    shutil.rmtree(made.folder.parent)
    (tmp_path / "disk" / f"{lock.name.rpartition('-')[0]}-planted.lock").symlink_to(lock)
    lock.unlink()
    assert reported(brought(tmp_path, archive=archive))[1] == "first"


def test_uv_installs_what_its_lock_says_and_ranks_do_not_sync(tmp_path: Path, uv: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    text = '[project]\nname = "mine"\nversion = "1"\nrequires-python = ">=3.8"\ndependencies = []\n'
    (project / "pyproject.toml").write_text(text)
    with pytest.raises(NoEnvironmentError, match=r"uv\.lock does not exist"):
        brought(tmp_path, uv="pyproject.toml")
    subprocess.run([str(uv), "lock", "--quiet"], cwd=project, check=True)
    copy = brought(tmp_path, uv="pyproject.toml")
    assert not (project / ".venv").exists()
    environ = {**os.environ, **copy.variables(os.environ)}
    words = [str(uv), "run", "--quiet", "python", "-c", "import sys; print(sys.prefix)"]
    ended = ran(words, folder=project, environ=environ, code=0)
    assert ended.stdout.strip() == str(copy.folder)


def test_nodes_that_share_the_folder_share_the_copy(tmp_path: Path, venv: Path) -> None:
    found: list[Copy] = []
    other = threading.Thread(target=lambda: found.append(brought(tmp_path, SECOND, venv=str(venv))))
    other.start()
    until(lambda: list((tmp_path / "disk").glob("*.lock")) != [], "the second node to wait")
    first = brought(tmp_path, FIRST, venv=str(venv))
    other.join(60)
    assert [one.folder for one in found] == [first.folder]


def test_the_versions_that_are_recorded_are_those_of_the_environment(tmp_path: Path, venv: Path) -> None:
    metadata = module_of(venv).with_name("torch-9.8.7.dist-info") / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text("Name: torch\nVersion: 9.8.7\n")
    copy = brought(tmp_path, archive=str(packed(venv)))
    paths = RunPaths(tmp_path / "run")
    host.record_packages(paths, rank=0, attempt=1, required=False, python=copy.python)
    (recorded,) = software.recorded(paths)
    assert recorded.packages["torch"] == "9.8.7"
