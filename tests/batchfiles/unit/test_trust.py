"""A batch file that somebody else has written runs only once its user has agreed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import typer

from batchfiles.commands.trust import agree_to_run
from trainjob.contract.errors import UserError


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    path = tmp_path / "train.sbatch"
    path.write_text("#!/bin/bash\n")
    return path


def of(author: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainjob.backends.project.other_author", lambda _path: author)


def test_ones_own_file_is_not_asked_about(file: Path) -> None:
    assert agree_to_run(file, yes=False) == file.read_bytes()


def test_a_yes_holds_for_the_whole_content(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    of("else@where", monkeypatch)
    start = b"#!/bin/bash\n" + b"#" * 3_900_000
    file.write_bytes(start)
    assert agree_to_run(file, yes=True) == start
    file.write_bytes(start + b"\nrm -rf x\n")
    with pytest.raises(UserError, match=r"give --yes"):
        agree_to_run(file, yes=False)
    file.write_bytes(start + b"#" * 200_000)
    with pytest.raises(UserError, match=r"larger than 4,000,000 bytes"):
        agree_to_run(file, yes=True)


def test_a_file_of_another_author_needs_a_yes_once_for_each_content(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of("else@where", monkeypatch)
    for content in ("one", "two"):
        file.write_text(content)
        with pytest.raises(UserError, match=r"is else@where's, .* give --yes"):
            agree_to_run(file, yes=False)
        agree_to_run(file, yes=True)
        agree_to_run(file, yes=False)


def test_who_says_no_is_asked_again(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    of("else@where", monkeypatch)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    answers = iter((False, True))

    def confirm(_text: str, *, abort: bool, err: bool) -> None:
        assert err
        if not next(answers) and abort:
            raise typer.Abort

    monkeypatch.setattr(typer, "confirm", confirm)
    with pytest.raises(typer.Abort):
        agree_to_run(file, yes=False)
    for _ in range(2):
        agree_to_run(file, yes=False)


def test_a_file_of_another_owner_needs_one(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: own + 1)
    with pytest.raises(UserError, match=rf"is user {own}'s"):
        agree_to_run(file, yes=False)
