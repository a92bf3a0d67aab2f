"""A name of ours in a shared folder is used only for what is ours."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from trainjob.records.own import NotOwnError, is_own_folder, make_own_folder, open_own, put_by_another
from trainjob.rehearse.slurm import private


def a_file(path: Path) -> None:
    path.touch()


def a_folder(path: Path) -> None:
    path.mkdir()


def a_link_to_a_folder(path: Path) -> None:
    path.symlink_to(path.parent)


def a_link_to_a_file(path: Path) -> None:
    (path.parent / "target").touch()
    path.symlink_to(path.parent / "target")


def of_another_user(make: Callable[[Path], None]) -> Callable[[Path], None]:
    def made(path: Path) -> None:
        if os.getuid() != 0:
            pytest.skip("only root gives a file away")
        make(path)
        os.chown(path, 1, 1)

    return made


@pytest.mark.parametrize("put", [a_file, a_link_to_a_folder, os.mkfifo, of_another_user(a_folder)])
def test_a_folder_is_ours_or_refused(put: Callable[[Path], None], tmp_path: Path) -> None:
    put(tmp_path / "name")
    assert not is_own_folder(tmp_path / "name")
    with pytest.raises(OSError, match="name"):
        make_own_folder(tmp_path / "name")


@pytest.mark.parametrize("put", [a_folder, a_link_to_a_file, os.mkfifo, of_another_user(a_file)])
def test_a_lock_is_ours_or_refused(put: Callable[[Path], None], tmp_path: Path) -> None:
    put(tmp_path / "name")
    for flags in ([], [os.O_RDONLY]):
        with pytest.raises(OSError, match="name"):
            open_own(tmp_path / "name", *flags)


def test_what_is_ours_is_made_once_and_for_us_alone(tmp_path: Path) -> None:
    for _ in range(2):
        make_own_folder(tmp_path / "folder")
        os.close(open_own(tmp_path / "lock"))
    assert (tmp_path / "folder").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "lock").stat().st_mode & 0o777 == 0o600
    assert issubclass(NotOwnError, OSError)  # whoever expects a folder that can't be written expects this


def test_what_lies_under_the_names_of_rehearsals_stops_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    for name in ("trainjob-slurm-pipe", "trainjob-slurm-left"):
        (tmp_path / name).mkdir()
    os.mkfifo(tmp_path / "trainjob-slurm-pipe/lock")
    (tmp_path / "trainjob-slurm-left/lock").touch()
    (tmp_path / "trainjob-slurm-link").symlink_to(tmp_path / "trainjob-slurm-left")
    assert private.remove_leftovers() == [tmp_path / "trainjob-slurm-left"]


def test_what_is_not_there_was_put_by_nobody(tmp_path: Path) -> None:
    assert not put_by_another(tmp_path / "missing")


@pytest.mark.parametrize(
    ("owner", "mode", "is_theirs"),
    [(4321, 0o1777, True), (4321, 0o755, False), (0, 0o1777, False), (None, 0o1777, False)],
)
def test_what_another_user_has_put_where_everybody_may_write_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: int | None, mode: int, is_theirs: bool
) -> None:
    path = tmp_path / "a b.yaml"
    path.touch()
    tmp_path.chmod(mode)
    found = os.lstat(path)
    facts = os.stat_result((*found[:4], found.st_uid if owner is None else owner, *found[5:]))
    monkeypatch.setattr(os, "lstat", lambda _: facts)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        assert put_by_another(path) is is_theirs
    assert [str(one.message) for one in warned] == is_theirs * [
        f"{path} is passed over: user 4321 has put it where everybody may write. If you trust that user, copy it into "
        f"a folder of your own, or let the owner of its folder take that right from others: chmod o-w {tmp_path}"
    ]
