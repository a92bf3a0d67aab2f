"""The smaller records of a run directory: what is written comes back, and what is odd is refused or says nothing."""

from __future__ import annotations

import json
import os
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.cases import each
from tests.support.clock import sleeps_skipped
from tests.support.records import record
from trainjob.contract.paths import RunPaths
from trainjob.records import attempts, files, job, job_facts, own, stacks, updates
from trainjob.records.attempts import StopRequest
from trainjob.records.stacks import ProcessStack, RankStacks

STACK = 'Current thread 0x1:\n  File "/a/train.py", line 7 in step\n  File "/a/main.py", line 3 in <module>\n'


@pytest.fixture
def paths(tmp_path: Path) -> RunPaths:
    return RunPaths(tmp_path)


# --- job.json as a launcher reads it.


def facts(paths: RunPaths, **asked: Any) -> job_facts.JobFacts:
    content = json.loads(record(command=["a", "ü"], environment={"A": "b"}).to_json())
    content["asked"]["job"] = asked
    paths.job.write_text(json.dumps(content))
    return job_facts.read(paths.job)


def test_a_launchers_facts_are_those_of_the_job(paths: RunPaths) -> None:
    found = facts(paths, stall_timeout_s=60, exit_grace_s=5, idle_timeout_s=7, on_stall="end", progress="step (.*)")
    assert (found.command, found.environment, found.trains, found.uses_data) == (["a", "ü"], {"A": "b"}, False, True)
    assert (found.stall_timeout_s, found.exit_grace_s, found.idle_timeout_s) == (60.0, 5.0, 7.0)
    assert (found.on_stall, found.progress) == ("end", "step (.*)")
    assert facts(paths)[4:9] == (None, None, None, None, None)


@pytest.mark.parametrize(
    "change", [{"command": ["a", 1]}, {"environment": {"A": 1}}, {"contract": 99}, {"train": None}]
)
def test_a_launcher_reads_no_job_that_the_ranks_would_refuse(paths: RunPaths, change: dict[str, Any]) -> None:
    content = {**json.loads(record(command=["a"]).to_json()), **change}
    paths.job.write_text(json.dumps(content))
    if change == {"train": None}:
        assert job_facts.read(paths.job).command == ["a"]
        return
    with pytest.raises(job.ContractError):
        job_facts.read(paths.job)


# --- Requests.


def test_the_first_request_to_stop_of_an_attempt_stands(paths: RunPaths) -> None:
    attempts.note_request(paths, 1, StopRequest("INT", 1.5))
    assert attempts.request(paths, 2) is None
    attempts.note_request(paths, 2, StopRequest("USR1", 2.5))
    attempts.note_request(paths, 2, StopRequest("TERM", 3.5))
    assert [attempts.request(paths, attempt) for attempt in (1, 2)] == [
        StopRequest("INT", 1.5),
        StopRequest("USR1", 2.5),
    ]


@pytest.mark.parametrize("text", ["", "USR1\n", "usr1 1.5\n", "USR1 1.5 more\n", "USR1 -1.5\n"])
def test_what_is_no_request_to_stop_is_none(paths: RunPaths, text: str) -> None:
    paths.asked(1).write_text(text)
    assert attempts.request(paths, 1) is None


def test_launchers_whose_ranks_ended_well_are_counted_for_each_attempt(paths: RunPaths) -> None:
    assert attempts.ended_well(paths, 1) == 0
    folder = paths.folder / ".ended"
    folder.mkdir()
    for name, text in (("1.a", "0"), ("1.b", "1"), ("1.c", "0"), ("2.a", "0"), ("11.a", "0"), ("1.d", "")):
        (folder / name).write_text(text)
    assert [attempts.ended_well(paths, attempt) for attempt in (1, 2, 3)] == [2, 1, 0]


@pytest.mark.parametrize(("text", "count"), [(None, 1), ("3\n", 3), ("3 of 5\n", 3), ("many\n", 1)])
def test_starts_are_what_the_job_script_has_counted(paths: RunPaths, text: str | None, count: int) -> None:
    if text is not None:
        paths.starts.write_text(text)
    assert attempts.starts(paths) == count


# --- Stacks.


def of_rank(rank: int, at: float = 0.0, stack: str | None = STACK, **process: Any) -> RankStacks:
    one = ProcessStack(pid=5, command="python", state="S", stack=stack, **{"cpu_s": 0.0, "io_bytes": 0, **process})
    return RankStacks(word="w", attempt=1, rank=rank, host="h", time=at, processes=[one])


def test_stacks_come_back_from_their_file_and_from_its_bytes(paths: RunPaths) -> None:
    assert (stacks.read(paths, 3), stacks.word(paths, 3)) == (None, "")
    paths.logs.mkdir()
    stacks.write(paths, of_rank(3))
    assert (stacks.read(paths, 3), stacks.word(paths, 3)) == (of_rank(3), "w")
    content = paths.rank_stacks(3).read_bytes()
    assert stacks.parse(content) == of_rank(3)
    assert stacks.parse(content[:-5]) is None
    assert stacks.parse(b'{"word": 1}') is None


def test_ranks_at_one_place_are_one_group_and_the_smallest_comes_first() -> None:
    other = 'Thread 0x2:\n  File "/b.py", line 1 in wait\n\n' + STACK
    found = stacks.groups([of_rank(2), of_rank(0), of_rank(1, stack=None), of_rank(3, stack=other)])
    assert [group.ranks for group in found] == [[1], [0, 2, 3]]
    assert [str(group) for group in found] == [
        "rank 1 is in no Python code",
        "3 ranks (0, 2, 3) are in step (train.py:7) ← <module> (main.py:3)",
    ]
    assert str(stacks.groups([of_rank(rank) for rank in range(8)])[0]).startswith(
        "8 ranks (0, 1, 2, 3, 4, 5, 6, 7) are"
    )
    assert "6, 7 …) are" in str(stacks.groups([of_rank(rank) for rank in range(9)])[0])


def of_state(state: str, at: float = 0.0) -> RankStacks:
    return replace(of_rank(0, at), processes=[replace(of_rank(0).processes[0], state=state)])


MOVED, COMPUTED, STILL = {"stacks", "cpu"}, {"cpu"}, set[str]()


@each(
    ("before", "after", "signs"),
    [
        (of_rank(0), of_rank(0, 10.0), STILL),
        (of_rank(0), of_rank(0, 10.0, cpu_s=0.099), STILL),
        (of_rank(0), of_rank(0, 10.0, cpu_s=0.1), COMPUTED),
        (of_rank(0), of_rank(0, 10.0, io_bytes=160 << 10), STILL),
        (of_rank(0), of_rank(0, 10.0, io_bytes=(160 << 10) + 1), MOVED),
        (of_rank(0, io_bytes=1 << 30), of_rank(0, 10.0, io_bytes=(1 << 30) + 5), STILL),
        (of_rank(0, cpu_s=5.0), of_rank(0, 10.0, cpu_s=0.0), STILL),
        (of_rank(0), of_rank(0, 10.0, stack="another"), MOVED),
        (of_rank(0), of_rank(0, 10.0, cpu_s=None), MOVED),
        (of_rank(0, cpu_s=None), of_rank(0, 10.0), MOVED),
        (of_rank(0), of_rank(0, 0.0), MOVED),
        (of_state("D"), of_state("D", 10.0), COMPUTED),
        (of_state("S"), of_state("D", 10.0), STILL),
    ],
)
def test_the_signs_of_life_between_two_looks_at_a_rank(before: RankStacks, after: RankStacks, signs: set[str]) -> None:
    assert stacks.signs_of_life({0: before}, {0: after}) == signs


def test_the_signs_of_life_of_all_ranks_are_those_of_any() -> None:
    before = {rank: of_rank(rank) for rank in range(3)}
    still = {rank: of_rank(rank, 10.0) for rank in range(2)}
    assert stacks.signs_of_life(before, still) == STILL
    assert stacks.signs_of_life(before, {**still, 2: of_rank(2, 10.0, cpu_s=9.0)}) == COMPUTED
    assert stacks.signs_of_life(before, {**still, 3: of_rank(3, 10.0)}) == MOVED
    assert stacks.signs_of_life(before, {}) == MOVED


# --- Updates, as `verify` reads them.


def test_the_events_of_each_rank_are_read_as_they_grow(paths: RunPaths) -> None:
    record_of = updates.UpdatePaths(paths)
    record_of.folder.mkdir()
    for rank in (1, 0):
        files.append_json_line(record_of.rank(rank), {"event": updates.STARTS, "rank": rank})
    assert [[event["rank"] for event in events] for events in record_of.ranks()] == [[0], [1]]
    lines = record_of.lines(1)
    assert len(list(lines.new())) == 1
    files.append_json_line(record_of.rank(1), {"event": updates.UPDATE})
    assert [event["event"] for event in lines.new()] == [updates.UPDATE]


def test_what_a_save_has_torn_is_known_with_its_copy(tmp_path: Path) -> None:
    assert updates.kept(tmp_path, 1) is None
    files.write_json(tmp_path / "kept-1.json", {"path": "/a/x.pt", "kept": "/copy"})
    files.write_json(tmp_path / "kept-2.json", {"path": "/a/x.pt", "kept": None})
    assert updates.kept(tmp_path, 1) == updates.KeptState(Path("/a/x.pt"), Path("/copy"))
    assert updates.kept(tmp_path, 2) == updates.KeptState(Path("/a/x.pt"), None)


def test_where_an_attempt_waits_is_written_and_taken_back(tmp_path: Path) -> None:
    updates.wait_at(tmp_path, 2, updates.AT_SAVE, 5)
    assert files.read_json(tmp_path / "wait-2.json") == {"moment": "save", "after": 5}
    updates.wait_nowhere(tmp_path)
    assert list(tmp_path.iterdir()) == []


# --- Files.


@pytest.mark.parametrize("mode", [0o700, 0o750, 0o755, 0o705])
def test_only_the_owner_writes_below_a_shared_folder(tmp_path: Path, mode: int) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    folder.chmod(mode)
    before = os.umask(0)
    try:
        files.keep_others_from_writing(folder)
        (tmp_path / "new").touch()
        (tmp_path / "folder").mkdir()
    finally:
        os.umask(before)
    made = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("new", "folder")]
    assert made == ([0o666, 0o777] if mode == 0o700 else [0o644, 0o755])


def test_lines_that_can_not_be_read_are_damaged_once_and_a_missing_file_is_not(tmp_path: Path) -> None:
    for name, damaged in (("missing", 0), ("missing/file", 0), ("folder", 1)):
        (tmp_path / "folder").mkdir(exist_ok=True)
        lines = files.JsonLines(tmp_path / name)
        for _ in range(2):
            assert list(lines.blocks()) == []
            assert lines.damaged == damaged


def test_a_last_line_that_is_whole_without_its_end_is_read_once(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    lines = files.JsonLines(path)
    for added, new in (('{"a": 1}\n{"a": 2}', [1, 2]), ("\n", []), ('{"a": 3', []), ('}\n{"a": 4}\n', [3, 4])):
        with path.open("a") as stream:
            stream.write(added)
        assert [one["a"] for one in lines.new()] == new
    assert lines.damaged == 0


def test_what_is_refused_as_not_ours_stays_open_nowhere(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with pytest.raises(own.NotOwnError):
            own.open_own(tmp_path / "pipe", os.O_RDONLY)
    assert len(os.listdir("/proc/self/fd")) == before


# --- Asked for.


def test_stacks_are_asked_for_once_under_a_prefix_and_waited_for(
    paths: RunPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths.logs.mkdir()
    asked = stacks.request(paths, "a-")
    assert asked == f"a-{os.getpid()}"
    paths.stacks_request.write_text("a-before\n")
    assert stacks.request(paths, "a-") == "a-before"
    assert stacks.request(paths, "b-") == f"b-{os.getpid()}"
    waited = sleeps_skipped(monkeypatch)
    for rank in (0, 1):
        assert stacks.wait(paths, 2, "w") is None
        assert 4.9 < sum(waited) < 5.2, "no more than 5 s"
        waited.clear()
        stacks.write(paths, of_rank(rank))
    stacks.wait(paths, 2, "w")
    assert waited == []
    ready = iter([False, False, True])
    stacks.wait(paths, 2, "w", lambda: next(ready))
    assert len(waited) == 2


def test_a_full_disk_keeps_stacks_from_being_asked_for_and_no_more(
    paths: RunPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(attempts, "ask_for_stacks", full)
    assert stacks.request(paths, "a-") == f"a-{os.getpid()}"
