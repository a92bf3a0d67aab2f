"""Logs: whole lines as they come, the torn last one at the end."""

from __future__ import annotations

from pathlib import Path

from run_folders import made

from trainjob.runs import logs
from trainjob.runs.logs import Tail


def test_only_whole_lines_are_handed_on_until_the_end(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"one\ntw")
    tail = Tail(log, b"[0] ")
    assert list(tail.new_lines()) == [b"[0] one\n"]
    with log.open("ab") as stream:
        stream.write(b"o\nthr")
    assert list(tail.new_lines()) == [b"[0] two\n"]
    assert list(tail.finish()) == [b"[0] thr\n"]
    assert list(tail.finish()) == []


def test_a_log_that_is_not_there_yet_is_read_when_it_is(tmp_path: Path) -> None:
    tail = Tail(tmp_path / "log")
    assert list(tail.new_lines()) == []
    (tmp_path / "log").write_bytes(b"one\n")
    assert list(tail.new_lines()) == [b"one\n"]


def test_a_line_longer_than_a_block_stays_whole(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"x" * 200_000 + b"\nend\n")
    assert [len(line) for line in Tail(tmp_path / "log").new_lines()] == [200_001, 4]


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
