"""The secrets file: who may read it, how it is read, and that no message holds a value."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from trainjob.contract.secrets import SecretsError, check_mode, read


def file(folder: Path, content: bytes, mode: int = 0o600) -> Path:
    path = folder / "tokens"
    path.write_bytes(content)
    path.chmod(mode)
    return path


def refused(path: Path) -> str:
    with pytest.raises(SecretsError) as caught:
        read(path)
    return str(caught.value)


@pytest.mark.parametrize("mode", [0o600, 0o400, 0o700])
def test_a_file_of_the_owner_alone_is_read(tmp_path: Path, mode: int) -> None:
    assert read(file(tmp_path, b"A=b\n", mode)) == {"A": "b"}


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o660, 0o601, 0o610, 0o777])
def test_a_file_that_others_may_touch_is_refused(tmp_path: Path, mode: int) -> None:
    path = file(tmp_path, b"A=hunter2\n", mode)
    assert refused(path) == (
        f"secrets_file {path} has mode {mode:04o}: others may read it; needed is 0600. Run: chmod 600 {path}"
    )


@pytest.mark.parametrize(
    ("content", "values"),
    [
        (b"", {}),
        (b"\n\n", {}),
        (b"# A=b\n  # c\n   \n", {}),
        (b"A=b\nC=d", {"A": "b", "C": "d"}),
        (b"A=b=c==\n", {"A": "b=c=="}),
        (b"A=\n", {"A": ""}),
        (b"A= b c \n", {"A": " b c "}),
        (b"A='b' \"c\"\n", {"A": "'b' \"c\""}),
        (b"A=$(date) `date` $HOME\\n\n", {"A": "$(date) `date` $HOME\\n"}),
        (b"A=b # c\n", {"A": "b # c"}),
        (b"A=1\nA=2\n", {"A": "2"}),
        (b"A=b\r\nC=d\r\n", {"A": "b", "C": "d"}),
        (b"A=b\rc\n", {"A": "b\rc"}),
        ("A=ü\n".encode(), {"A": "ü"}),
        (b"A=\xff\n", {"A": "\udcff"}),
        ("A=\u2028\x85\n".encode(), {"A": "\u2028\x85"}),
    ],
)
def test_values_are_the_rest_of_the_line_byte_for_byte(tmp_path: Path, content: bytes, values: dict[str, str]) -> None:
    assert read(file(tmp_path, content)) == values


@pytest.mark.parametrize(
    "line", [b"hunter2", b"export A=hunter2", b"A =hunter2", b"1A=hunter2", b"=hunter2", b"A-B=hunter2"]
)
def test_a_line_that_is_none_is_named_by_its_number(tmp_path: Path, line: bytes) -> None:
    path = file(tmp_path, b"# first\n" + line + b"\n")
    assert refused(path) == f"secrets_file {path}, line 2: expected NAME=VALUE: correct that line"


def test_what_no_environment_can_carry_is_refused(tmp_path: Path) -> None:
    path = file(tmp_path, b"A=hunter2\0\n")
    assert refused(path) == (
        f"secrets_file {path}, line 1: the value holds a NUL character, which no environment can carry: take it out"
    )


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    path = tmp_path / "nowhere"
    assert (
        refused(path) == f"secrets_file {path} does not exist: make it with one NAME=VALUE a line, or take the key out"
    )


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    assert refused(tmp_path) == f"secrets_file {tmp_path} is not a file: give the path of a file with NAME=VALUE lines"


def test_a_file_in_the_path(tmp_path: Path) -> None:
    path = file(tmp_path, b"") / "x"
    assert refused(path) == f"secrets_file {path} can't be read (Not a directory): it must be yours"


def test_a_file_of_somebody_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(*_: object) -> bytes:
        raise PermissionError(13, "Permission denied")

    path = file(tmp_path, b"A=b\n")
    monkeypatch.setattr(Path, "read_bytes", denied)
    assert refused(path) == f"secrets_file {path} can't be read (Permission denied): it must be yours"


def test_a_tilde_is_the_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file(tmp_path, b"A=b\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert read("~/tokens") == {"A": "b"}


def test_the_mode_that_counts_is_that_of_the_file_and_not_of_a_link(tmp_path: Path) -> None:
    path = file(tmp_path, b"", 0o644)
    os.symlink(path, tmp_path / "link")
    with pytest.raises(SecretsError, match="has mode 0644"):
        check_mode(tmp_path / "link")
