"""The modes of what a run that others may read writes, whatever the user's umask is."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from tests.support.local_runs import Here


@pytest.mark.parametrize(("share", "umask"), [("group", 0o002), ("all", 0o000), ("group", 0o077)])
def test_others_can_read_a_shared_run_and_never_write_in_it(here: Here, share: str, umask: int) -> None:
    here.cluster("shared", f"runs_dir: {here.project / 'runs'}\nshare: {share}\n")
    size = ("--instances", "1", "--updates", "2")
    before = os.umask(umask)
    try:
        words = ("--cluster", "shared", "--follow", "--task", "digits-cnn", *size, "--checkpoint-every", "1")
        folder = Path(here.json("submit", *words)["folder"])
    finally:
        os.umask(before)
    modes = {path: path.lstat().st_mode for path in folder.rglob("*")}
    assert folder / "checkpoints/update-00000002/model.safetensors" in modes
    assert folder / "state" in modes
    assert [path for path, mode in modes.items() if not stat.S_ISLNK(mode) and mode & 0o022] == []
    for_all = [path for path in modes if not path.name.startswith(".")]
    assert [path for path in for_all if not modes[path] & 0o040] == []
