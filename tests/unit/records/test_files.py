"""Files that survive an interruption: old or new, never a part."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainjob.records import files


@pytest.mark.parametrize("umask", [0o000, 0o002, 0o022, 0o077])
def test_a_new_file_has_content_and_mode_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        files.write_atomically(tmp_path / "f", "näh\n", 0o755)
        files.append_json_line(tmp_path / "lines", {})
        with files.only_owner_writes():
            (tmp_path / "folder").mkdir()
        assert os.umask(umask) == umask
    finally:
        os.umask(before)
    assert (tmp_path / "f").read_bytes() == "näh\n".encode()
    assert (tmp_path / "f").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "lines").stat().st_mode & 0o777 == 0o644 & ~umask
    assert (tmp_path / "folder").stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_failure_leaves_the_old_file_and_nothing_beside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    (tmp_path / "f").write_text("old")
    monkeypatch.setattr(os, step, full)
    with pytest.raises(OSError, match="No space left"):
        files.write_atomically(tmp_path / "f", "new")
    assert (tmp_path / "f").read_text() == "old"
    assert os.listdir(tmp_path) == ["f"]


def test_json_comes_back(tmp_path: Path) -> None:
    value = {"a": [1, None, "ü\udcff"], "b": {"c": 1.5}}
    files.write_json(tmp_path / "f", value)
    assert files.read_json(tmp_path / "f") == value
    assert "ü" in (tmp_path / "f").read_text()


@given(st.text())
def test_any_text_is_json_in_utf8(text: str) -> None:
    assert json.loads(files.as_bytes(json.dumps(text, ensure_ascii=False))) == text


@pytest.mark.parametrize("content", [b"", b"{", b'{"a": 1', b"\xff\xfe", b"nonsense"])
def test_what_is_no_whole_json_is_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "f").write_bytes(content)
    assert files.read_json(tmp_path / "f") is None


@pytest.mark.parametrize(
    ("content", "word", "number"),
    [
        (b"12\n", "12", 12),
        (b" RUNNING \n", "RUNNING", None),
        (b"", None, None),
        (b"\n", None, None),
        (b"\xff", "�", None),
        (None, None, None),
    ],
)
def test_words_and_numbers(tmp_path: Path, content: bytes | None, word: str | None, number: int | None) -> None:
    if content is not None:
        (tmp_path / "f").write_bytes(content)
    assert (files.read_word(tmp_path / "f"), files.read_number(tmp_path / "f")) == (word, number)


def test_there_is_no_json_where_there_is_no_file(tmp_path: Path) -> None:
    assert files.read_json(tmp_path / "f") is None
    assert list(files.read_json_lines(tmp_path / "f")) == []


def test_torn_lines_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b'{"a": 1}\n{"a": 2\n\xff\n[3]\n\n{"a": 4}\n{"a": ')
    assert list(files.read_json_lines(tmp_path / "f")) == [{"a": 1}, {"a": 4}]


def test_an_append_after_a_torn_line_starts_its_own(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b'{"a": 1}\n{"a": ')
    files.append_json_line(tmp_path / "f", {"a": "ü\udcff"})
    files.append_json_line(tmp_path / "f", {"a": 3})
    assert list(files.read_json_lines(tmp_path / "f")) == [{"a": 1}, {"a": "ü\udcff"}, {"a": 3}]


def test_the_first_bytes_of_a_file_are_read_and_no_more(tmp_path: Path) -> None:
    with (tmp_path / "f").open("wb") as stream:
        stream.write(b"begin")
        stream.truncate(6 << 30)
    assert files.read_first(tmp_path / "f", 7) == b"begin\0\0"
    with pytest.raises(files.DamagedError, match="is larger than 7 bytes"):
        files.read_small(tmp_path / "f", 7)


@pytest.mark.parametrize("name", ["pipe", "folder", "/dev/zero", "/dev/tty"])
def test_what_is_no_regular_file_is_not_read(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    with pytest.raises((files.DamagedError, OSError)):
        files.read_first(tmp_path / name, 7)


def test_a_file_of_the_kernel_is_not_read() -> None:
    assert files.read_first(Path("/proc/self/environ"), 7) == b""


def test_appended_lines_follow_each_other_without_a_gap(tmp_path: Path) -> None:
    for number in (1, 22, 3):
        files.append_json_line(tmp_path / "f", {"a": number})
    assert (tmp_path / "f").read_bytes() == b'{"a":1}\n{"a":22}\n{"a":3}\n'


def test_lines_that_are_no_objects_are_counted_and_a_torn_last_one_is_not(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b'{"a": 1}\n[1]\n{"a": 2\n1, 2\n{"a": 3}\n{"a": ')
    lines = files.JsonLines(tmp_path / "f")
    assert (list(lines.new()), lines.damaged) == ([{"a": 1}, {"a": 3}], 3)
    with (tmp_path / "f").open("ab") as stream:
        stream.write(b'4}\n{"a": 5}\n2\n')
    assert (list(lines.new()), lines.damaged) == ([{"a": 4}, {"a": 5}], 4)


def test_a_line_that_is_too_long_is_passed_over_as_one(tmp_path: Path) -> None:
    long = b'{"a": "' + b"x" * (9 << 20) + b'"}'
    (tmp_path / "f").write_bytes(b'{"a": 1}\n' + long + b'\n{"a": 2}\n' + long)
    lines = files.JsonLines(tmp_path / "f")
    assert (list(lines.new()), lines.damaged) == ([{"a": 1}, {"a": 2}], 1)
    with (tmp_path / "f").open("ab") as stream:
        stream.write(b'\n{"a": 3}\n')
    assert (list(lines.new()), lines.damaged) == ([{"a": 3}], 2)


def test_removing_nothing_is_nothing(tmp_path: Path) -> None:
    files.remove_if_there(tmp_path / "f")
    (tmp_path / "f").touch()
    files.remove_if_there(tmp_path / "f")
    assert os.listdir(tmp_path) == []
