"""What launchers and ranks note in a run directory for its job script, for servers' folders, and for each other."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from trainjob.contract import clock
from trainjob.contract.paths import RunPaths
from trainjob.records import attempts, roles
from trainjob.records.attempts import StopRequest
from trainjob.records.failure import Failure


@pytest.fixture
def paths(tmp_path: Path) -> RunPaths:
    return RunPaths(tmp_path)


def full(*_: Any, **__: Any) -> None:
    raise OSError(28, "No space left on device")


def test_the_end_of_each_rank_is_a_file_with_its_code(paths: RunPaths) -> None:
    for rank, code in ((0, 0), (1, 143), (2, 0)):
        attempts.leave_end_mark(paths, 4, rank, code)
    assert paths.end_mark(4, 1).read_text() == "143\n"
    assert sorted(os.listdir(paths.end_marks)) == sorted(paths.end_mark(4, rank).name for rank in range(3))
    assert attempts.ended_well(paths, 4) == 2


def test_a_request_takes_the_space_that_was_kept_where_the_disk_is_full(
    paths: RunPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts.keep_room_for_request(paths)
    kept = paths.room_for_request.stat().st_size
    assert kept > len("USR1 1700000000.123\n")
    monkeypatch.setattr(attempts, "write_atomically", full)
    attempts.note_request(paths, 2, StopRequest("USR1", 1.5))
    assert attempts.request(paths, 2) == StopRequest("USR1", 1.5)
    assert paths.asked(2).stat().st_size == kept, "not a byte more is needed"
    assert not paths.room_for_request.exists()
    attempts.note_request(paths, 2, StopRequest("TERM", 2.5))  # the first one stands
    assert attempts.request(paths, 2) == StopRequest("USR1", 1.5)
    with pytest.raises(OSError, match="No such file"):
        attempts.note_request(paths, 3, StopRequest("TERM", 2.5))
    attempts.keep_room_for_request(paths)  # nobody hears of it
    assert not paths.room_for_request.exists()


def test_a_request_that_another_nodes_launcher_noted_meanwhile_is_no_error(
    paths: RunPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    def noted_meanwhile(*_: Any, **__: Any) -> None:
        paths.asked(2).write_text("TERM 1.000\n")
        full()

    monkeypatch.setattr(attempts, "write_atomically", noted_meanwhile)
    attempts.note_request(paths, 2, StopRequest("USR1", 1.5))
    assert attempts.request(paths, 2) == StopRequest("TERM", 1.0)


def test_the_first_launcher_that_got_a_signal_past_the_script_is_noted(
    paths: RunPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clock, "time", lambda: 12.25)
    for signal, who in (("TERM", "rank 0"), ("TERM", "rank 1"), ("INT", "rank 1")):
        attempts.note_signal(paths, 1, signal, who)
    assert paths.bypassed(1, "TERM").read_text() == "12.250 rank 0\n"
    assert paths.bypassed(1, "INT").read_text() == "12.250 rank 1\n"
    monkeypatch.setattr(attempts, "write_atomically", full)
    attempts.note_signal(paths, 1, "HUP", "rank 0")  # nothing but the account is lost
    assert not paths.bypassed(1, "HUP").exists()


@pytest.mark.parametrize(("text", "is_asked"), [(None, False), ("2\n", True), ("1\n", False), ("", False)])
def test_an_attempt_is_asked_by_its_number(paths: RunPaths, text: str | None, is_asked: bool) -> None:
    if text is not None:
        paths.request.write_text(text)
    assert attempts.is_asked_by_file(paths, 2) is is_asked


def test_when_a_state_was_written_is_its_files_time(paths: RunPaths) -> None:
    assert attempts.ended_at(paths) == float("inf")
    paths.state.write_text("FAILED\n")
    os.utime(paths.state, (5, 7))
    assert attempts.ended_at(paths) == 7


def test_a_servers_folder_is_made_ready_for_its_next_start(paths: RunPaths) -> None:
    server = paths.of_role("server")
    paths.code.mkdir()
    paths.job.write_text("{}")
    for token in (None, "abc"):
        if token:
            paths.token.write_text(f"{token}\n")
        roles.begin(server, 3)
        assert (server.attempt.read_text(), server.logs.is_dir()) == ("3\n", True)
        assert os.readlink(server.code) == "../../code"
        assert (server.token.read_text() if server.token.exists() else None) == (token and f"{token}\n")
        stale = (server.failure, server.terminated(3), server.asked(3), server.end_mark(3, 0))
        assert not any(map(os.path.lexists, stale))
        for path in (*stale, server.rank_log(0)):
            path.parent.mkdir(exist_ok=True)
            path.write_text("as the last start left it")
    roles.begin(server, 3)
    assert not any(map(os.path.lexists, stale))
    assert server.rank_log(0).exists(), "logs are appended"


@pytest.mark.parametrize(
    ("code", "how"),
    [(0, "0"), (1, "1"), (127, "127"), (129, "129 (SIGHUP)"), (137, "137 (SIGKILL)"), (255, "255")],
)
def test_how_a_rank_ended_is_its_code_and_the_signal_that_it_stands_for(code: int, how: str) -> None:
    found = Failure(attempt=1, rank=2, host="n1", exit_code=code, command=["x"], tail=[])
    assert found.how == f"rank 2 on n1 failed first, with exit code {how}"
    assert (found.last_line, Failure(1, 2, "n1", 1, [], ["[rank2]: no", " "]).last_line) == ("", "no")
