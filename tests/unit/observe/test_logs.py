"""Logs: whole lines as they come, the torn last one at the end."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.run_folders import made
from trainjob.observe import logs
from trainjob.observe.logs import Tail


@pytest.mark.parametrize("end", ["", "\n"])
@pytest.mark.parametrize("length", [3, 70_000])  # of a line: in one block of reading, and over several
def test_the_last_lines_of_each_log_are_read_alone(tmp_path: Path, length: int, end: str) -> None:
    log = tmp_path / "rank-0000.log"
    lines = [f"{number}{'x' * length}" for number in range(6)]
    log.write_text("\n".join(lines) + end)
    for count in (0, 1, 2, 6, 9):
        tail = logs.Tail(log, last_lines=count)
        text = b"".join([*tail.new(), *tail.finish()]).decode()
        assert text.split() == lines[6 - min(count, 6) :], count


def test_only_whole_lines_are_handed_on_until_the_end(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"one\ntw")
    tail = Tail(log, b"[0] ")
    assert list(tail.new()) == [b"[0] one\n"]
    with log.open("ab") as stream:
        stream.write(b"o\nthr")
    assert list(tail.new()) == [b"[0] two\n"]
    assert list(tail.finish()) == [b"[0] thr\n"]
    assert list(tail.finish()) == []


def test_a_log_that_is_not_there_yet_is_read_when_it_is(tmp_path: Path) -> None:
    tail = Tail(tmp_path / "log")
    assert list(tail.new()) == []
    (tmp_path / "log").write_bytes(b"one\n")
    assert list(tail.new()) == [b"one\n"]


def test_a_line_longer_than_a_block_stays_whole(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"x" * 200_000 + b"\nend\n")
    assert b"".join(Tail(tmp_path / "log", b"[0] ").new()) == b"[0] " + b"x" * 200_000 + b"\n[0] end\n"


@pytest.mark.parametrize("is_scripts", [False, True])
def test_a_progress_bar_shows_before_its_line_ends(tmp_path: Path, is_scripts: bool) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"first\n10 %\r20 %\r3")
    tail = Tail(log, is_scripts=is_scripts)
    assert b"".join(tail.new()) == b"first\n10 %\r20 %\r"
    with log.open("ab") as stream:
        stream.write(b"0 %\ndone")
    assert b"".join(tail.new()) == b"30 %\n"
    assert b"".join(tail.finish()) == b"done\n"


@pytest.mark.parametrize("is_scripts", [False, True])
def test_pieces_are_bounded_in_a_log_without_line_ends(tmp_path: Path, is_scripts: bool) -> None:
    (tmp_path / "log").write_bytes(b"x" * 1_000_000)
    tail = Tail(tmp_path / "log", b"" if is_scripts else b"[0] ", is_scripts=is_scripts)
    pieces = [*tail.new(), *tail.finish()]
    assert max(len(piece) for piece in pieces) < 200_000
    assert b"".join(pieces) == (b"" if is_scripts else b"[0] ") + b"x" * 1_000_000 + b"\n"


def test_a_bar_of_one_rank_ends_where_another_rank_prints(tmp_path: Path) -> None:
    logs_of = [tmp_path / "0", tmp_path / "1"]
    logs_of[0].write_bytes(b"10 %\r20")
    logs_of[1].write_bytes(b"line\n")
    together = logs.Together()
    tails = [Tail(path, b"[%d] " % rank) for rank, path in enumerate(logs_of)]
    assert b"".join(together.new(tails)) == b"[0] 10 %\r\n[1] line\n"
    with logs_of[0].open("ab") as stream:
        stream.write(b" %\n")
    assert b"".join(together.new(tails)) == b"[0] 20 %\n"


def test_a_log_that_is_no_file_is_named(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "rank-0000.log")
    tail = Tail(tmp_path / "rank-0000.log")
    assert b"".join(tail.new()) == b"trainjob: rank-0000.log can't be read: is not a regular file\n"
    assert list(tail.new()) == []


def test_one_ranks_bytes_are_unchanged(tmp_path: Path) -> None:
    paths = made(tmp_path, "abcd")
    content = b"bar 1\rbar 2\n\n\xff torn"
    paths.rank_log(1).write_bytes(content)
    assert b"".join(logs.read(paths, 1)) == content


def test_ranks_are_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    paths = made(tmp_path, "abcd")
    for rank in (10_000, 2, 0):
        paths.rank_log(rank).write_bytes(b"line\n")
    assert list(logs.read(paths, None)) == [b"[0] line\n", b"[2] line\n", b"[10000] line\n"]


def test_following_reads_once_more_after_the_end(tmp_path: Path) -> None:
    paths = made(tmp_path, "abcd")

    def ended() -> bool:
        # A rank prints its last line and ends, just when the follower asks.
        paths.rank_log(0).write_bytes(b"first\nlast")
        return True

    assert list(logs.follow(paths, None, ended, lambda: None)) == [b"[0] first\n", b"[0] last\n"]
