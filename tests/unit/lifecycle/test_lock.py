"""One command at a time begins an attempt of a run, and the other one is told who it is."""

from __future__ import annotations

import getpass
import json
import os
import socket
import threading
import time
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths
from trainjob.lifecycle.lock import locked


def held_by(paths: RunPaths, **changes: Any) -> Path:
    """Leave a lock behind, as a command that was killed does."""
    holder = {"command": "trainjob resume", "host": socket.gethostname(), "pid": 1 << 22, "started": "1"}
    lock = paths.folder / ".lock"
    lock.write_text(json.dumps({**holder, "user": "ml", "since": "2026-01-01 00:00:00", "token": "abc", **changes}))
    return lock


def test_a_second_command_learns_who_holds_the_lock(tmp_path: Path) -> None:
    paths = RunPaths(tmp_path)
    with (
        locked(paths, "trainjob resume"),
        pytest.raises(UserError, match=rf"locked by trainjob resume of \w+, process {os.getpid()} on ") as refused,
        locked(paths, "trainjob resume"),
    ):
        pass
    assert refused.value.problem.code == "locked"
    assert f"remove {tmp_path}/.lock" in refused.value.cure
    assert list(tmp_path.iterdir()) == []


def test_a_command_may_wait_for_the_lock(tmp_path: Path) -> None:
    paths, held, entered = RunPaths(tmp_path), threading.Event(), list[str]()

    def resume() -> None:
        with locked(paths, "trainjob resume"):
            held.set()
            time.sleep(0.3)
            entered.append("resume")

    thread = threading.Thread(target=resume)
    thread.start()
    held.wait()
    with locked(paths, "trainjob cancel", wait_s=60.0):
        entered.append("cancel")
    thread.join()
    assert entered == ["resume", "cancel"]


@pytest.mark.parametrize("changes", [{}, {"pid": os.getpid()}], ids=["gone", "an id used again"])
def test_the_lock_of_a_process_that_is_gone_is_taken(tmp_path: Path, changes: dict[str, Any]) -> None:
    paths = RunPaths(tmp_path)
    held_by(paths, **changes)
    with locked(paths, "trainjob resume"):
        assert json.loads((tmp_path / ".lock").read_text())["pid"] == os.getpid()
    assert list(tmp_path.iterdir()) == []


def test_a_command_that_was_killed_as_it_removed_a_stale_lock_is_in_nobodys_way(tmp_path: Path) -> None:
    paths = RunPaths(tmp_path)
    held_by(paths, token="def").rename(tmp_path / ".lock.abc.claim")
    held_by(paths, token="abc")
    with locked(paths, "trainjob resume"):
        assert json.loads((tmp_path / ".lock").read_text())["pid"] == os.getpid()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("changes", [{"host": "elsewhere"}, {"token": None}, {"pid": "x"}])
def test_a_lock_of_which_nobody_can_tell_is_kept(tmp_path: Path, changes: dict[str, Any]) -> None:
    lock = held_by(RunPaths(tmp_path), **changes)
    with pytest.raises(UserError, match="is locked"), locked(RunPaths(tmp_path), "trainjob resume"):
        pass
    assert lock.exists()


def test_of_many_that_find_a_stale_lock_one_has_it_at_a_time(tmp_path: Path) -> None:
    held_by(RunPaths(tmp_path))
    inside, most, entered = 0, 0, 0
    guard, begin = threading.Lock(), threading.Barrier(16)

    def contend() -> None:
        nonlocal inside, most, entered
        begin.wait()
        try:
            with locked(RunPaths(tmp_path), "trainjob resume"):
                with guard:
                    inside, entered = inside + 1, entered + 1
                    most = max(most, inside)
                with guard:
                    inside -= 1
        except UserError:
            pass

    threads = [threading.Thread(target=contend) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1
    assert entered >= 1


def test_a_folder_that_can_not_be_written_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="can't be written"), locked(RunPaths(tmp_path / "gone"), "trainjob resume"):
        pass


def test_a_user_without_an_account_is_named_by_the_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(getpass, "getuser", Mock(side_effect=KeyError("no such user")))
    paths = RunPaths(tmp_path)
    with (
        locked(paths, "trainjob resume"),
        pytest.raises(UserError, match=f"locked by trainjob resume of {os.getuid()}, process"),
        locked(paths, "trainjob resume"),
    ):
        pass
