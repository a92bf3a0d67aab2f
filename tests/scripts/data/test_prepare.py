"""Preparing a data set by command line: without numpy, and after a kill."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.programs import ran
from trainjob.data.prepare import prepare


def test_what_a_killed_process_left_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    left = tmp_path / f".digits.{socket.gethostname()}.new.{ended.pid}.part"
    left.mkdir()
    at_work = tmp_path / f".digits.{socket.gethostname()}.new.{os.getppid()}.part"
    at_work.mkdir()
    prepare("digits", tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["digits", at_work.name])


WITHOUT_NUMPY = """
import sys
sys.modules["numpy"] = None  # importing it fails as where it is not installed
from trainjob.cli.main import main
sys.argv[0] = "trainjob"
main()
"""


def without_numpy(*words: str) -> subprocess.CompletedProcess[str]:
    return ran([sys.executable, "-c", WITHOUT_NUMPY, *words])


def test_list_check_and_help_need_no_numpy(tmp_path: Path) -> None:
    for words in (["list"], ["check", "digits"], ["prepare", "--help"], ["list", "--help"]):
        folder = [] if "--help" in words else ["--data-dir", str(tmp_path)]
        ended = without_numpy("data", *words, *folder)
        assert (ended.returncode, ended.stderr) == (0, ""), words
    assert without_numpy("data", "prepare", "digits", "--data-dir", str(tmp_path)).returncode == 0


@pytest.mark.parametrize("words", [["synthetic"], ["cifar10", "--from", "x"]])
def test_preparing_without_numpy_says_what_to_install(tmp_path: Path, words: list[str]) -> None:
    ended = without_numpy("data", "prepare", *words, "--data-dir", str(tmp_path))
    assert ended.returncode == 1
    assert f"preparing {words[0]} needs numpy" in ended.stderr
    assert "-m pip install numpy" in ended.stderr
    assert len(ended.stderr.strip().splitlines()) == 1
    assert list(tmp_path.iterdir()) == []
