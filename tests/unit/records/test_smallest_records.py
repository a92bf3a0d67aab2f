"""Records of few fields: traces, profiles, measurements, submissions, software; and the words of a run directory."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.support.records import record
from tests.support.run_folders import made, recorded
from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths
from trainjob.records import (
    attempts,
    causes,
    failure,
    files,
    job,
    job_facts,
    measures,
    metrics,
    outlived,
    own,
    profile,
    progress,
    software,
    updates,
    usage,
)
from trainjob.records import submission as submissions
from trainjob.records.failure import Evidence, Failure
from trainjob.records.files import DamagedError
from trainjob.records.job import HostGroup, Topology
from trainjob.records.measures import RankTimes
from trainjob.records.output import Output
from trainjob.records.profile import Operator, RankProfile
from trainjob.records.progress import ProgressRecord
from trainjob.records.software import HostSoftware
from trainjob.records.submission import Remote
from trainjob.records.trace import TracePaths
from trainjob.records.usage import DeviceUse, UsageRecord


@pytest.fixture
def paths(tmp_path: Path) -> RunPaths:
    made = RunPaths(tmp_path / "abcd")
    made.logs.mkdir(parents=True)
    return made


# --- What ranks leave.


def test_a_trace_is_read_by_rank_as_it_grows(paths: RunPaths) -> None:
    trace = TracePaths(paths)
    assert (trace.facts(), trace.ranks()) == (None, [])
    trace.folder.mkdir()
    trace.write_facts({"layers": ["conv"]})
    for rank in (1, 0):
        trace.append(rank, {"update": 1, "rank": rank})
    lines = trace.lines(1)
    assert list(lines.new()) == [{"update": 1, "rank": 1}]
    trace.append(1, {"update": 2})
    assert list(lines.new()) == [{"update": 2}]
    assert [len(one) for one in trace.ranks()] == [1, 2]
    assert trace.facts() == {"layers": ["conv"]}
    trace.model.write_text("[]")
    assert trace.facts() is None
    assert trace.update(7) == paths.folder / "trace/update-00000007.safetensors"


def test_profiles_come_back_in_the_order_of_ranks(paths: RunPaths) -> None:
    assert profile.recorded(paths) == []
    (paths.folder / "profile").mkdir()
    some = [RankProfile(rank, 1, "cpu", 2, 5, 1.5, [Operator("mm", 3, 0.5)], 0.5, 0.25) for rank in (1, 0)]
    for one in some:
        profile.write(paths, one)
    (paths.folder / "profile/rank-0002.json").write_text("{")
    assert profile.recorded(paths) == some[::-1]
    assert profile.trace_of(paths, 3) == paths.folder / "profile/rank-0003.trace.json.gz"


def test_times_measurements_and_uses_come_back(paths: RunPaths) -> None:
    times = RankTimes(1, 10, 10, {"data": 0.5})
    measures.append_times(paths, 1, times)
    assert list(measures.rank_times(paths, 1).new()) == [times]
    assert measures.read_measurement(paths) is None
    measures.write_measurement(paths, {"samples_per_s": 5.0})
    assert measures.read_measurement(paths) == {"samples_per_s": 5.0}
    (paths.folder / measures.MEASUREMENT).write_text("[]")
    assert measures.read_measurement(paths) is None
    assert usage.newest(paths, 1) is None
    for at in (1.0, 2.0):
        usage.append(paths, UsageRecord(1, 1, "h", 5, at, 2, 100, devices=[DeviceUse("GPU 0", 0.5)]))
    newest = usage.newest(paths, 1)
    assert newest is not None
    assert (newest.time, newest.devices) == (2.0, [DeviceUse("GPU 0", 0.5)])


def test_a_rank_that_outlived_its_attempt_is_of_that_attempt(paths: RunPaths) -> None:
    one = outlived.Outlived(2, 3, "h", 10.4, "training was complete")
    outlived.write(paths, one)
    assert [outlived.read(paths, attempt) for attempt in (1, 2, 3)] == [None, one, None]
    assert str(one).startswith("rank 3 on h was ended 10 s after training was complete: it did nothing any more")


def test_progress_is_overwritten_in_place_where_no_new_file_has_room(paths: RunPaths) -> None:
    assert (progress.load(paths), progress.read(paths)) == (None, ProgressRecord())
    one, other = ProgressRecord(attempt=1, trouble="x" * 300), ProgressRecord(attempt=2, sources={"loss": "log"})
    progress.write(paths, one)
    before = paths.progress.stat()
    assert before.st_size == 4096
    progress.overwrite(paths, other)
    assert (paths.progress.stat().st_ino, paths.progress.stat().st_size) == (before.st_ino, 4096)
    assert progress.read(paths) == progress.load(paths) == other
    assert paths.progress.read_bytes().endswith(b"\n")


def test_a_metric_lines_object_is_what_was_written(paths: RunPaths) -> None:
    writer = metrics.Writer(paths, 1)
    writer.append("train", 1, 5, {"loss": 0.5, "newer": [1]})
    writer.append("train", 1, 6, {"loss": 0.5})
    writer.close()
    writer.append("train", 1, 7, {"loss": 0.5})
    writer.close()
    assert [line["update"] for line in metrics.raw(paths)] == [5, 6, 7]
    assert metrics.raw(paths)[0] == {"kind": "train", "attempt": 1, "epoch": 1, "update": 5, "loss": 0.5, "newer": [1]}


# --- A log that grows.


def texts(output: Output, *, is_last: bool = False) -> list[str]:
    return [line.text for line in output.new(is_last=is_last)]


def test_the_lines_of_an_attempt_are_those_behind_its_mark(paths: RunPaths) -> None:
    log = paths.logs / "rank-0000.log"
    output = Output(log, 2)
    assert texts(output) == []
    log.write_bytes(b"--- attempt 1 x\nold\n")
    assert texts(output) == []
    with log.open("ab") as stream:
        stream.write(b"--- attempt 2 y\nfirst\nhalf")
        stream.flush()
        assert texts(output) == ["--- attempt 2 y", "first"]
        stream.write(b" line\n\x1b[2Aup\rbar 1\rbar 2")
        stream.flush()
        assert texts(output) == ["half line", "up", "bar 1"]
        assert texts(output) == ["bar 2"], "nothing has followed it"
        stream.write(b"rest")
        stream.flush()
        assert texts(output, is_last=True) == ["rest"]


def test_of_a_log_that_grows_faster_than_it_is_read_the_newest_part_is_shown(paths: RunPaths) -> None:
    log = paths.logs / "rank-0000.log"
    log.write_bytes(b"--- attempt 1 x\n" + b"early\n" + b"x" * (1 << 16) + b"\nlate\n")
    assert [line for line in texts(Output(log, 1)) if not line.startswith("x")] == ["late"]
    log.write_bytes(b"--- attempt 1 x\n" + b"y" * 5000)
    output = Output(log, 1)
    assert texts(output) == ["--- attempt 1 x"]
    assert texts(output) == ["y" * 4096], "of a line without an end, its end"
    log.write_bytes(b"z" * (1 << 20) + b"--- attempt 1 x\nlate\n")
    assert texts(Output(log, 1)) == ["--- attempt 1 x", "late"]
    log.write_bytes(b"--- attempt 1 x\n" + b"z" * (1 << 20))
    assert texts(Output(log, 1)) == []


# --- Words.


@pytest.mark.parametrize(("text", "state"), [(None, None), ("", None), ("RUNNING\n", "RUNNING")])
def test_a_state_is_one_of_ours(paths: RunPaths, text: str | None, state: str | None) -> None:
    if text is not None:
        paths.state.write_text(text)
    assert attempts.load_state(paths) == attempts.state(paths) == state


def test_a_word_that_is_no_state_is_damage(paths: RunPaths) -> None:
    paths.state.write_text("RUN" + "N" * 60)
    with pytest.raises(DamagedError, match=r"state: holds 'RUNN{37}', expected one of .*RUNNING"):
        attempts.load_state(paths)


def test_the_words_of_a_run_directory_are_read(paths: RunPaths) -> None:
    assert (attempts.load_current(paths), attempts.current(paths)) == (None, 0)
    for path, text in (
        *((paths.attempt, "3\n"), (paths.exit_code, "143\n"), (paths.job_id, "7_1\n"), (paths.step_gone, "3\n")),
        (paths.token, "abc\n"),
    ):
        path.write_text(text)
    assert (attempts.load_current(paths), attempts.exit_code(paths), attempts.load_exit_code(paths)) == (3, 143, 143)
    assert (attempts.job_id(paths), attempts.token(paths)) == ("7_1", "abc")
    assert [attempts.has_lost_step(paths, attempt) for attempt in (2, 3)] == [False, True]
    attempts.ask_to_requeue(paths, 40)
    attempts.ask_for_stacks(paths, "w1")
    assert (paths.requeue.read_text(), attempts.asked_for_stacks(paths)) == ("40\n", "w1")


@pytest.mark.parametrize(
    ("text", "number"), [("000000012", 12), ("123456789", 123456789), ("1234567890", None), ("١", None), ("-1", None)]
)
def test_a_number_has_nine_digits_at_most(paths: RunPaths, text: str, number: int | None) -> None:
    paths.attempt.write_text(text)
    assert files.read_number(paths.attempt) == number
    if number is None:
        with pytest.raises(DamagedError, match=r"attempt: holds .*, expected a whole number"):
            files.load_number(paths.attempt)


def test_a_word_is_short(paths: RunPaths) -> None:
    paths.state.write_text("x" * 4096)
    assert files.load_word(paths.state) == "x" * 4096
    paths.state.write_text("x" * 4097)
    assert files.read_word(paths.state) is None
    with pytest.raises(DamagedError, match="state: is larger than 4096 bytes"):
        files.load_word(paths.state)


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}")])
def test_json_is_nested_64_levels_deep_at_most(opening: str, closing: str) -> None:
    assert files.parse_json(opening * 63 + "[]" + closing * 63)
    with pytest.raises(DamagedError, match="is nested more than 64 levels deep"):
        files.parse_json(opening * 64 + "[]" + closing * 64)


def test_what_can_not_be_read_is_damage_and_what_is_missing_is_not(
    paths: RunPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(FileNotFoundError):
        files.load_json(paths.job)
    assert files.read_json(paths.job / "below") is None
    paths.state.write_text("RUNNING")
    assert files.load_word(paths.state / "below") is None

    def denied(*_: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", denied)
    with pytest.raises(DamagedError, match=r"can't be read \(Permission denied\)"):
        files.read_small(paths.state)


def test_a_line_that_the_disk_takes_in_part_is_an_error_and_the_next_one_is_whole(
    paths: RunPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = files.LineWriter(paths.metrics)
    lines.append({"a": 1})

    class Full:
        def write(self, line: bytes) -> int:
            with paths.metrics.open("ab") as stream:
                return stream.write(line[:3])

        def close(self) -> None:
            pass

    monkeypatch.setattr(files, "open", lambda *_, **__: Full(), raising=False)
    lines.close()
    monkeypatch.setattr(files, "append_json_line", lambda *_: None)
    lines.append({"a": 2})
    with pytest.raises(OSError, match="No space left on device"):
        lines.append({"a": 3})
    monkeypatch.undo()
    lines.append({"a": 4})
    lines.close()
    assert list(files.read_json_lines(paths.metrics)) == [{"a": 1}, {"a": 4}]


def test_what_is_no_folder_is_not_our_own(tmp_path: Path) -> None:
    assert not own.is_own_folder(tmp_path / "missing")
    assert own.is_own_folder(tmp_path)


def test_hooks_come_before_what_python_already_looks_through(tmp_path: Path) -> None:
    alone, before = updates.hooked(tmp_path, None), updates.hooked(tmp_path, "/mine")
    assert before["PYTHONPATH"] == alone["PYTHONPATH"] + ":/mine"
    assert alone["PYTHONPATH"].endswith("trainjob/launch/hooks")
    assert alone[updates.RECORD_UPDATES] == str(tmp_path)


# --- Software.


@pytest.mark.parametrize(
    ("version", "is_older"),
    [("2.5.1+cu124", True), ("1.99", True), *((one, False) for one in ("2.6", "2.6.0", "2.10", "3", "dev"))],
)
def test_versions_are_compared_by_number(version: str, is_older: bool) -> None:
    assert software.is_older(version, "2.6") is is_older


def test_hosts_that_differ_are_counted_and_named(paths: RunPaths) -> None:
    paths.attempt.write_text("2\n")
    one, two = {"torch": "2.5", "python": "3.11"}, {"torch": "2.6", "python": "3.11"}
    software.record(paths, HostSoftware(1, 5, "old", two))
    assert software.record(paths, HostSoftware(2, 0, "a", one)) == 1
    assert software.record(paths, HostSoftware(2, 4, "b", one)) == 1
    assert software.record(paths, HostSoftware(2, 2, "c", two)) == 2
    (paths.folder / "hosts/rank-0009.json").write_text('{"attempt": "x", "rank": 1, "host": "h", "packages": {}}')
    (paths.folder / "hosts/rank-0008.json").write_text('{"attempt": 2, "rank": true, "host": "h", "packages": {}}')
    (paths.folder / "hosts/rank-0007.json").write_text('{"attempt": 2, "rank": 1, "host": "h", "packages": []}')
    (paths.folder / "hosts/rank-0006.json").write_text('{"attempt": 2, "rank": 1, "host": 1, "packages": {}}')
    found = software.recorded(paths)
    assert [host.host for host in found] == ["a", "c", "b"]
    problem = software.difference(found)
    assert problem is not None
    assert problem.text.endswith("different software: torch is 2.5 on a and 2.6 on c")
    assert software.difference([]) is None
    assert software.difference(found[:1]) is None


@pytest.mark.parametrize(("count", "more"), [(6, None), (8, "; and 2 more")])
def test_six_differences_are_shown(count: int, more: str | None) -> None:
    hosts = [HostSoftware(1, 0, "a", {}), HostSoftware(1, 1, "b", {f"p{number}": "1" for number in range(count)})]
    problem = software.difference(hosts)
    assert problem is not None
    assert problem.text.count("not installed on a and 1 on b") == 6
    assert problem.text.endswith(more) if more else "more" not in problem.text


# --- job.json.


@pytest.mark.parametrize("rank", [-1, 2])
def test_a_rank_that_a_run_does_not_have_is_refused(rank: int) -> None:
    topology = record(2).plan.topology
    for known in (0, 1):
        topology.refuse_unknown_rank("abcd", known)
    with pytest.raises(UserError, match=rf"run abcd has no rank {rank}: it has ranks 0 to 1"):
        topology.refuse_unknown_rank("abcd", rank)


def test_groups_of_hosts_say_where_each_rank_is() -> None:
    groups = [HostGroup("a", 2, 3), HostGroup("b", 1, 1)]
    topology = Topology("h[1-3]", 3, 7, 3, 7, 2, 2, "GPU", groups=groups)
    assert [topology.group_of_rank(rank) for rank in (0, 5, 6, 7)] == [0, 0, 1, None]
    assert topology.instances_of_hosts == [3, 3, 1]
    assert (topology.devices, topology.devices_per_instance) == (14, 4)
    assert topology.first_device(5, 2) == 8
    alike = Topology("h[1-2]", 2, 4, 2, 8, 2, 1, "IPU")
    assert (alike.instances_of_hosts, alike.group_of_rank(0), alike.ranks) == ([2, 2], None, 4)
    assert alike.first_device(3, 1) == 6
    assert Topology("h", 1, 1, 1, 4, 4, 1, "GPU").ranks == 4


def test_the_name_of_a_job_is_text_or_damage(paths: RunPaths) -> None:
    assert job.load_name(paths.job) is None
    assert job.load_name(paths.job / "below") is None
    paths.job.write_text('{"name": "x"}')
    assert job.load_name(paths.job) == "x"
    for content, said in (
        ("[]", r"name is \[\]"),
        ('{"name": 1}', "name is 1"),
        ("{}", "name is None"),
        ("{", "is not"),
    ):
        paths.job.write_text(content)
        with pytest.raises(DamagedError, match=rf"job\.json: {said}"):
            job.load_name(paths.job)


def test_only_a_record_that_holds_a_text_is_parsed(paths: RunPaths) -> None:
    assert job.read_if_it_has(paths.job, "x") is None
    paths.job.write_text(record(name="näh").to_json())
    found = job.read_if_it_has(paths.job, "näh")
    assert found is not None
    assert found.name == "näh"
    assert job.read_if_it_has(paths.job, "other") is None
    paths.job.write_text("n\u00e4h {")
    assert job.read_if_it_has(paths.job, "n\u00e4h {") is None


def test_a_job_that_can_not_be_read_is_damage(paths: RunPaths) -> None:
    paths.job.mkdir()
    with pytest.raises(job.ContractError, match=r"job\.json is not a regular file"):
        job.read(paths.job)
    with pytest.raises(job.ContractError, match=r"job\.json is not a regular file"):
        job_facts.read(paths.job)


@pytest.mark.parametrize(
    ("train", "data", "expected"),
    [(True, None, (True, False)), (True, "d", (True, True)), (False, None, (False, True))],
)
def test_a_launcher_knows_whether_its_ranks_train_and_use_data(
    paths: RunPaths, train: bool, data: str | None, expected: tuple[bool, bool]
) -> None:
    content = json.loads(record(command=None if train else ["a"]).to_json())
    content["train"] = {"data": data} if train else None
    content["asked"]["job"] = {"once": {"data": [{"shell": "x"}]}, "environment": {"archive": "a.tar"}}
    content["asked"]["cluster"]["file"]["same_packages"] = "warn"
    paths.job.write_text(json.dumps(content))
    found = job_facts.read(paths.job)
    assert (found.trains, found.uses_data) == expected
    assert (found.once, found.python_environment) == ({"data": [{"shell": "x"}]}, {"archive": "a.tar"})
    assert found.same_packages == "warn"


def test_a_job_file_that_could_not_be_read_for_a_moment_is_read(
    paths: RunPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths.job.write_text(record(command=["a"]).to_json())
    refusals = [files.DamagedError("can't be read (Input/output error)")]

    def flaky(path: Path) -> Any:
        if refusals:
            raise refusals.pop()
        return files.load_json(path)

    monkeypatch.setattr(job_facts, "load_json", flaky)
    assert job_facts.read(paths.job).command == ["a"]


# --- submission.json.


def test_an_element_was_submitted_with_its_run(tmp_path: Path) -> None:
    paths = made(tmp_path, "abcd", native={"job_id": "7"}, remote={"host": "h", "user": None, "folder": "/r/abcd"})
    element = submissions.load(paths.of_element(3))
    assert element is not None
    assert element.native == {"job_id": "7", "element": 3}
    assert element.remote == Remote("h", None, "/r/abcd/tasks/3")
    paths.submission.unlink()
    assert (submissions.load(paths.of_element(3)), submissions.load(paths)) == (None, None)


def test_a_copy_of_a_run_directory_has_no_jobs_of_its_own(tmp_path: Path) -> None:
    original = made(tmp_path, "abcd", native={"job_id": "7"})
    recorded(original).write(original)
    copy = RunPaths(tmp_path / "copy")
    copy.folder.mkdir()
    copy.submission.write_bytes(original.submission.read_bytes())
    found = submissions.load(copy)
    assert found is not None
    assert (found.native, found.remote, found.copy_of) == (None, None, str(original.folder))
    mine = submissions.load(original)
    assert mine is not None
    assert (mine.native, mine.copy_of) == ({"job_id": "7"}, None)
    link = RunPaths(tmp_path / "link")
    link.folder.symlink_to(original.folder)
    same = submissions.load(link)
    assert same is not None
    assert same.copy_of is None
    original.submission.unlink()
    moved = submissions.load(copy)
    assert moved is not None
    assert (moved.native, moved.copy_of) == ({"job_id": "7"}, None), "it was moved"


def test_the_record_of_a_run_on_another_machine_is_no_copy(tmp_path: Path) -> None:
    remote = Remote("h", None, "/r/abcd")
    paths = made(tmp_path, "abcd", remote=dataclasses.asdict(remote))
    paths.submission.write_text(json.dumps({**json.loads(paths.submission.read_text()), "folder": "/r/abcd"}))
    found = submissions.load(paths)
    assert found is not None
    assert (found.copy_of, found.remote) == (None, remote)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"submitted_at": "yesterday"}, "submitted_at is 'yesterday', expected a time"),
        ({"submitted_at": "2026-01-01T00:00:00"}, "expected a time"),
        ({"remote": {"host": "-oProxyCommand=x", "user": None, "folder": "/r"}}, "remote.host is '-oProxyCommand=x'"),
    ],
)
def test_an_odd_submission_is_damage(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    paths = made(tmp_path, "abcd", **change)
    with pytest.raises(DamagedError, match=rf"submission\.json: .*{said}"):
        submissions.load(paths)
    assert submissions.read(paths) is None


def test_the_answer_about_an_ended_job_is_of_its_attempt(paths: RunPaths) -> None:
    answer = submissions.Settled(2, "FAILED", "a note")
    assert submissions.settled(paths, 2) is None
    submissions.settle(paths, answer)
    before = os.stat(paths.folder / ".settled.json").st_ino
    submissions.settle(paths, answer)
    assert os.stat(paths.folder / ".settled.json").st_ino == before, "it was written already"
    assert [submissions.settled(paths, attempt) for attempt in (1, 2, 3)] == [None, answer, None]
    assert submissions.settled(paths, 2, "2026-11-23T10:00:00+00:00") is None, "resumed since, as that attempt"
    submissions.settle(RunPaths(paths.folder / "missing"), answer)
    assert not (paths.folder / "missing").exists()


def test_when_an_attempt_was_asked_for(tmp_path: Path) -> None:
    first = recorded(made(tmp_path, "abcd"))
    assert first.asked_at == first.submitted_at
    assert first.replace(resumed_at="2026-02-01T00:00:00+00:00").asked_at == "2026-02-01T00:00:00+00:00"


# --- Causes.


def step(**changes: Any) -> Evidence:
    return Evidence(**{"exit_code": 3, "rank": 0, "host": "h", "step": "step data", **changes})


def test_a_step_that_failed_is_the_cause_and_says_what_it_is_known_for() -> None:
    late = causes.cause_of(step(timeout_s=30.0))
    assert late is not None
    assert (late.code, late.text) == ("step-timeout", "step data on host h did not end in the 30 s that it was given")
    plain = causes.cause_of(step(lines=["no"]))
    assert plain is not None
    assert (plain.code, plain.text) == ("step-failed", "step data on host h failed with exit code 3")
    assert str(plain) == f"{plain.text}. Its last lines say why; trainjob resume runs it again"
    full = causes.cause_of(step(lines=["No space left on device"]))
    assert full is not None
    assert full.text == "step data on host h failed with exit code 3: a disk is full"
    assert full.cure.startswith("Free some space")
    killed = causes.cause_of(step(exit_code=137, kernel=["Out of memory: Killed process 5"]))
    assert killed is not None
    assert "was killed for memory" in killed.text
    assert str(causes.Cause("c", "it failed", "")) == "it failed"
    assert causes.Cause("c", "t", "u").as_json()["code"] == "c"


def test_the_cause_of_a_run_is_drawn_from_its_failure_or_its_log(paths: RunPaths) -> None:
    assert causes.of_run(paths) is None
    paths.scheduler_log.write_text("slurmstepd: error: Detected 1 oom_kill event\nother: No space left on device\n")
    full = causes.of_run(paths)
    assert full is not None
    assert full.code == causes.OUT_OF_MEMORY
    failed = Failure(1, 0, "h", 1, ["x"], ["KeyError: 'x'"])
    failure.record_first(paths, failed)
    raised, alone = causes.of_run(paths), causes.of_failure(failed)
    assert raised is not None
    assert alone is not None
    assert alone.text == "rank 0 on host h raised KeyError: 'x'"
    assert failure.evidence_of_run(paths).lines == ["slurmstepd: error: Detected 1 oom_kill event", "KeyError: 'x'"]
    paths.failure.unlink()
    progress.write(paths, ProgressRecord(trouble="Disk quota exceeded"))
    paths.exit_code.write_text("3\n")
    found = failure.evidence_of_run(paths, "Slurm says so")
    assert (found.exit_code, list(found.lines[:2])) == (3, ["Slurm says so", "Disk quota exceeded"])
    assert failure.evidence_of_run(paths).lines[0] == "Disk quota exceeded"
