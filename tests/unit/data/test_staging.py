"""Copying a data set to a host's own disk: once, continued, compared, in use, removed."""

from __future__ import annotations

import fcntl
import shutil
import threading
from collections import namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trainjob.contract.errors import UserError
from trainjob.data import staging
from trainjob.data.prepare import prepare
from trainjob.data.shards import open_by_name
from trainjob.data.staging import stage


@pytest.fixture(autouse=True)
def nothing_to_wait_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not wait for the disk: that would wait for what other programs have written to it."""
    monkeypatch.setattr(staging, "sync_disk", lambda folder: None)


def tokens(folder: Path, count: int = 5000) -> Path:
    np.arange(count, dtype=np.uint16).tofile(folder / "tokens.bin")
    return prepare("mine", folder / "data", kind="tokens", source=str(folder / "tokens.bin")).parent


def staged(folder: Path, data_dir: Path) -> tuple[Any, list[str]]:
    output: list[str] = []
    (folder / "disk").mkdir(exist_ok=True)
    return stage("mine", data_dir, folder / "disk", output.append), output


def test_a_data_set_is_copied_once_and_read_from_the_copy(tmp_path: Path) -> None:
    data_dir = tokens(tmp_path)
    first, output = staged(tmp_path, data_dir)
    second, silent = staged(tmp_path, data_dir)
    assert (len(output), silent) == (1, [])
    identity = open_by_name("mine", data_dir).identity()
    copy = open_by_name("mine", second.data_dir)
    assert copy.identity() == identity
    assert copy.tokens("train").tolist() == list(range(5000))
    assert first.data_dir == second.data_dir
    assert tmp_path / "disk" in copy.folder.parents


def test_what_an_index_names_is_copied_too(tmp_path: Path) -> None:
    pytest.importorskip("PIL", reason="pip install Pillow")
    from tests.support.pictures import image_folder, web_dataset

    for kind, make in (("imagefolder", image_folder), ("webdataset", web_dataset)):
        folder = tmp_path / kind
        source = make(folder / "there")
        prepare("mine", folder / "data", kind=kind, source=str(source), store="index", shape=(3, 8, 8))
        before = open_by_name("mine", folder / "data").split("train").images
        contents = [before.content(number) for number in range(12)]
        copy, _ = staged(folder, folder / "data")
        shutil.rmtree(source)
        after = open_by_name("mine", copy.data_dir).split("train").images
        assert [after.content(number) for number in range(12)] == contents


def test_a_copy_that_was_cut_is_continued_and_one_of_another_file_is_made_anew(tmp_path: Path) -> None:
    data_dir = tokens(tmp_path)
    whole = (data_dir / "mine/train-tokens.bin").read_bytes()
    for left in (whole[:3000], b"of another file" * 10, whole + b"more"):
        copy, _ = staged(tmp_path, data_dir)
        file = copy.data_dir / "mine/train-tokens.bin"
        file.with_name(file.name + ".part").write_bytes(left)
        file.unlink()
        (copy.data_dir / ".complete").unlink()
        copy.release()
        again, output = staged(tmp_path, data_dir)
        assert file.read_bytes() == whole
        assert len(output) == 1
        assert not list(file.parent.glob("*.part"))
        again.release()


def test_a_file_that_is_not_what_was_prepared_is_named(tmp_path: Path) -> None:
    data_dir = tokens(tmp_path)
    file = data_dir / "mine/train-tokens.bin"
    file.write_bytes(b"\1" + file.read_bytes()[1:])
    with pytest.raises(UserError, match=r"train-tokens\.bin is not what was prepared: sha256 .*, expected .*--again"):
        staged(tmp_path, data_dir)


def test_a_disk_that_is_too_small_is_named_with_both_sizes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data_dir = tokens(tmp_path, 1_000_000)
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage(0, 0, 1_100_000))
    with pytest.raises(UserError, match=r"mine does not fit on .*disk: 2\.0 MB are missing, and it has 1\.1 MB free"):
        staged(tmp_path, data_dir)
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage(0, 0, 2_100_000))

    def fills_up(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(shutil, "copyfileobj", fills_up)
        with pytest.raises(UserError, match=r"mine does not fit on .*No space left.*a later start continues the copy"):
            staged(tmp_path, data_dir)
    staged(tmp_path, data_dir)
    with pytest.raises(UserError, match=r"there is no folder .*nowhere here\. Make it on every host, or give --stage"):
        stage("mine", data_dir, tmp_path / "nowhere", print)


def test_ranks_that_come_at_once_make_one_copy(tmp_path: Path) -> None:
    data_dir = tokens(tmp_path)
    results: list[Any] = []
    threads = [threading.Thread(target=lambda: results.append(staged(tmp_path, data_dir))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(len(output) for _, output in results) == [0, 0, 0, 1]


def test_ranks_that_all_find_no_copy_before_one_makes_it_do_not_wait_for_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data_dir, everybody, looked = tokens(tmp_path), threading.Barrier(3), threading.local()
    flock = fcntl.flock

    def together(lock: int, operation: int) -> None:
        flock(lock, operation)
        if operation == fcntl.LOCK_SH and not hasattr(looked, "once"):
            looked.once = True
            everybody.wait(60)

    monkeypatch.setattr(fcntl, "flock", together)
    results: list[Any] = []
    ranks = [threading.Thread(target=lambda: results.append(staged(tmp_path, data_dir)), daemon=True) for _ in range(3)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join(60)
    assert sorted(len(output) for _, output in results) == [0, 0, 1]


def test_a_copy_that_is_removed_while_another_run_opens_it_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data_dir = tokens(tmp_path)
    before, _ = staged(tmp_path, data_dir)
    make = staging.make_copy

    def once_removed(*arguments: Any) -> None:
        before.release(remove=True)
        make(*arguments)

    monkeypatch.setattr(staging, "make_copy", once_removed)
    after, output = staged(tmp_path, data_dir)
    assert len(output) == 1
    assert after.data_dir.stat().st_mode & 0o777 == 0o700


def test_a_copy_is_removed_on_request_by_whoever_uses_it_last(tmp_path: Path) -> None:
    data_dir = tokens(tmp_path)
    first, second = staged(tmp_path, data_dir)[0], staged(tmp_path, data_dir)[0]
    first.release(remove=True)
    assert (second.data_dir / "mine/manifest.json").is_file()
    second.release(remove=True)
    assert not second.data_dir.exists()
    kept, output = staged(tmp_path, data_dir)
    kept.release()
    assert len(output) == 1
    assert kept.data_dir.exists()


def test_the_copys_disk_is_synchronized_before_the_copy_counts_as_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[Path, bool]] = []

    def refused(folder: Path) -> None:
        seen.append((folder, (folder.parent / ".complete").exists()))
        raise OSError(5, "Input/output error", str(folder))

    monkeypatch.setattr(staging, "sync_disk", refused)
    with pytest.raises(UserError, match=r"can't be staged .* Input/output error"):
        staged(tmp_path, tokens(tmp_path))
    ((folder, complete),) = seen
    assert (folder.name, complete) == ("mine", False)
    assert not (folder.parent / ".complete").exists()
