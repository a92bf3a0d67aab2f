"""A run on another machine and its record here: what is sent, what is taken over, and what is left alone."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.run_folders import made, recorded
from tests.support.told_machine import ToldMachine
from trainjob.backends import mirror
from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths
from trainjob.machines import remote_files
from trainjob.machines.access import HERE
from trainjob.machines.machine import Machine
from trainjob.machines.process import Completed
from trainjob.machines.remote_files import Grown
from trainjob.records.submission import Remote, Submission

REMOTE = Remote("pod", "ml", "/there/abcd")


@pytest.fixture
def pod(monkeypatch: pytest.MonkeyPatch) -> ToldMachine:
    found = ToldMachine()
    monkeypatch.setattr(mirror, "machine_of", lambda remote: {"pod": found, "down": ToldMachine("down")}[remote.host])
    return found


def run_of(paths: RunPaths, remote: Remote | None = REMOTE) -> Submission:
    return recorded(paths).replace(remote=remote)


@pytest.fixture
def paths(tmp_path: Path) -> RunPaths:
    return made(tmp_path, "abcd")


@pytest.fixture
def submission(paths: RunPaths) -> Submission:
    return run_of(paths)


# --- Sent.


def test_the_jobs_files_are_replaced_where_the_run_is_there_already(pod: ToldMachine, paths: RunPaths) -> None:
    (paths.folder / "job.sh").write_text("true\n")
    mirror.place(paths, REMOTE)
    with tarfile.open(fileobj=io.BytesIO(pod.inputs[0])) as archive:
        assert archive.getnames() == ["job.json", "job.sh"]
    assert pod.calls[0][-1] == "/there/abcd"
    assert pod.copies == []


def test_a_run_that_is_not_there_is_sent_whole_and_a_disk_that_refuses_it_is_named(
    pod: ToldMachine, paths: RunPaths
) -> None:
    pod.answers = lambda _: (44, b"")
    mirror.place(paths, REMOTE)
    assert pod.copies == [("send", str(paths.folder), "/there/abcd")]
    pod.answers = lambda _: (1, b"")
    with pytest.raises(UserError, match=r"run directory /there/abcd on pod can't be written: it says why"):
        mirror.place(paths, REMOTE)
    assert len(pod.copies) == 1


# --- Its small files.


def present_is(monkeypatch: pytest.MonkeyPatch, contents: Mapping[str, bytes]) -> list[list[str]]:
    asked: list[list[str]] = []

    def present(machine: Machine, names: Sequence[str]) -> dict[str, bytes]:
        if machine.name == "down":
            raise UserError("down is not reached")
        asked.append(list(names))
        return {name: contents[name] for name in names if name in contents}

    monkeypatch.setattr(remote_files, "present", present)
    return asked


@pytest.mark.usefixtures("pod")
def test_small_files_are_as_they_are_there(
    paths: RunPaths, submission: Submission, monkeypatch: pytest.MonkeyPatch
) -> None:
    contents = {
        "/there/abcd": b"",
        "/there/abcd/state": b"FAILED\n",
        "/there/abcd/attempt": b"1\n",
        "/there/abcd/events": b"",
    }
    asked = present_is(monkeypatch, contents)
    paths.exit_code.write_text("0\n")
    old = paths.attempt.stat()
    assert mirror.refresh([(paths, submission)]) == {}
    assert asked[0][0] == "/there/abcd"
    assert asked[0][-1] == "/there/abcd/state", "whoever sees a new state sees what goes with it"
    assert (paths.state.read_text(), paths.events.read_text()) == ("FAILED\n", "")
    assert not paths.exit_code.exists(), "a new attempt has begun there"
    assert os.stat(paths.attempt).st_ino == old.st_ino, "what has not changed is not written"


@pytest.mark.usefixtures("pod")
def test_one_question_asks_for_all_runs_of_a_machine_and_what_can_not_be_seen_is_left_as_it_was(
    tmp_path: Path, paths: RunPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = present_is(monkeypatch, {"/there/abcd": b"", "/there/abcd/state": b"RUNNING\n"})
    gone, down, here = (made(tmp_path, name) for name in ("gone", "down", "here"))
    runs = [
        (paths, run_of(paths)),
        (gone, run_of(gone, Remote("pod", "ml", "/there/gone"))),
        (down, run_of(down, Remote("down", None, "/there/down"))),
        (here, run_of(here, None)),
    ]
    assert mirror.refresh(runs) == {
        str(gone.folder): "its run directory /there/gone on pod does not exist",
        str(down.folder): "state as last seen: down is not reached",
    }
    assert len(asked) == 1
    assert {"/there/abcd", "/there/gone"} <= set(asked[0])
    assert paths.state.read_text() == "RUNNING\n"
    assert [one.state.read_text() for one in (gone, down, here)] == ["COMPLETED\n"] * 3


# --- What grows.


def grown_is(monkeypatch: pytest.MonkeyPatch, *answers: dict[str, Grown]) -> list[dict[str, int]]:
    asked: list[dict[str, int]] = []
    left = list(answers)

    def grown(_: Machine, offsets: Mapping[str, int]) -> dict[str, Grown]:
        asked.append(dict(offsets))
        return left.pop(0)

    monkeypatch.setattr(remote_files, "grown", grown)
    return asked


@pytest.mark.usefixtures("pod")
def test_output_is_read_on_from_where_the_copy_ends(
    paths: RunPaths, submission: Submission, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths.metrics.write_bytes(b"12345")
    paths.rank_log(0).write_bytes(b"old and long")
    paths.logs.joinpath("rank-0001.log").unlink(missing_ok=True)
    there = "/there/abcd"
    asked = grown_is(
        monkeypatch,
        {
            f"{there}/metrics.jsonl": Grown(5, b"678"),
            f"{there}/logs/rank-0000.log": Grown(0, b"new"),
            f"{there}/logs/rank-0001.log": Grown(0, b"first"),
        },
    )
    mirror.refresh_output(paths, submission)
    assert set(asked[0]) == {
        *(f"{there}/{name}" for name in ("metrics.jsonl", "logs/scheduler.out", "logs/rank-0000.log")),
        *(f"{there}/{paths.rank_times(rank).relative_to(paths.folder)}" for rank in (0, 1)),
        f"{there}/logs/rank-0001.log",
    }
    assert asked[0][f"{there}/metrics.jsonl"] == 5
    assert asked[0][f"{there}/logs/rank-0001.log"] == 0
    assert paths.metrics.read_bytes() == b"12345678"
    assert paths.rank_log(0).read_bytes() == b"new", "it was written anew there"
    assert paths.rank_log(1).read_bytes() == b"first"
    assert paths.rank_log(1).stat().st_mode & 0o022 == 0


@pytest.mark.usefixtures("pod")
def test_more_than_one_answer_holds_is_asked_for_again(
    paths: RunPaths, submission: Submission, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_files, "MOST_BYTES", 4)
    name = f"/there/abcd/{paths.rank_usage(0).relative_to(paths.folder)}"
    asked = grown_is(monkeypatch, {name: Grown(0, b"1234")}, {name: Grown(4, b"567")})
    mirror.refresh_usage(paths, submission)
    assert [one[name] for one in asked] == [0, 4]
    assert paths.rank_usage(0).read_bytes() == b"1234567"
    assert "/there/abcd/metrics.jsonl" not in asked[0]


def test_a_run_of_this_machine_has_no_mirror(paths: RunPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = grown_is(monkeypatch)
    for here in (None, run_of(paths, None)):
        mirror.refresh_output(paths, here)
        mirror.fetch_checkpoints(paths, here)
        mirror.set_checkpoints_aside(paths, here)
        mirror.remove(here)
    assert asked == []


# --- Checkpoints.


def lists(pod: ToldMachine, *names: str) -> None:
    pod.answers = lambda words: (0, "\n".join(names).encode()) if words[0] == "ls" else (0, b"")


def test_the_newest_checkpoint_is_fetched_once(pod: ToldMachine, paths: RunPaths, submission: Submission) -> None:
    mirror.fetch_checkpoints(paths, submission)
    assert pod.copies == []
    lists(pod, "run-id", "update-00000100", "update-00000200", "zzz")
    mirror.fetch_checkpoints(paths, submission)
    there, here = "/there/abcd/checkpoints/update-00000200", paths.checkpoints / "update-00000200"
    assert pod.copies == [("receive", there, str(here))]
    assert pod.calls[0] == ("ls", "/there/abcd/checkpoints")
    here.mkdir(parents=True)
    mirror.fetch_checkpoints(paths, submission)
    assert len(pod.copies) == 1


def test_a_run_without_a_folder_of_checkpoints_has_none(
    pod: ToldMachine, paths: RunPaths, submission: Submission
) -> None:
    pod.answers = lambda _words: (2, b"")
    mirror.fetch_checkpoints(paths, submission)
    assert pod.copies == []


def test_every_checkpoint_there_is_set_aside(pod: ToldMachine, paths: RunPaths, submission: Submission) -> None:
    lists(pod, "run-id", "update-00000100", "update-00000200")
    mirror.set_checkpoints_aside(paths, submission)
    top = "/there/abcd/checkpoints"
    assert pod.calls[1:] == [
        call
        for name in ("update-00000100", "update-00000200")
        for call in (("rm", "-rf", f"{top}/set-aside-{name}"), ("mv", f"{top}/{name}", f"{top}/set-aside-{name}"))
    ]


# --- Stopped and removed.


def test_the_stop_file_is_there_and_here(pod: ToldMachine, paths: RunPaths, submission: Submission) -> None:
    mirror.ask_to_stop(paths, submission)
    assert paths.stop.exists()
    mirror.take_back_stop(paths, submission)
    assert not paths.stop.exists()
    assert pod.calls == [("touch", "/there/abcd/stop"), ("rm", "-f", "/there/abcd/stop")]
    mirror.ask_to_stop(paths, None)
    assert paths.stop.exists()
    mirror.take_back_stop(paths, None)
    assert not paths.stop.exists()
    assert len(pod.calls) == 2


@pytest.mark.parametrize("said", [True, False])
def test_a_run_is_removed_there_with_what_was_being_sent_to_it(
    pod: ToldMachine, submission: Submission, said: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror.remove(submission)
    assert pod.calls[0][-2:] == ("/there/abcd", "/there/.abcd.part")
    pod.answers = lambda _: (1, b"")
    run = pod.run

    def silent(*words: Any, **more: Any) -> Any:
        return run(*words, **more)._replace(stderr="" if not said else "denied\n")

    monkeypatch.setattr(pod, "run", silent)
    why = "denied" if said else "it is not a run directory"
    with pytest.raises(UserError, match=rf"/there/abcd on pod can't be removed: {why}"):
        mirror.remove(submission)


# --- Copied.


@pytest.mark.parametrize(("error", "shown"), [(OSError(28, "no space"), UserError), (KeyboardInterrupt(), None)])
def test_a_copy_that_was_cut_short_leaves_nothing(
    paths: RunPaths,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException,
    shown: type[UserError] | None,
) -> None:
    target = tmp_path / "elsewhere/new"

    class Cut(ToldMachine):
        def receive(self, _source: str, target: Path) -> None:
            target.with_name(f".{target.name}.part").mkdir()
            raise error

    monkeypatch.setattr(mirror, "place_of", lambda *_: (Cut(), "/there/abcd"))
    with pytest.raises(shown or type(error)):
        mirror.copy(paths, run_of(paths), target)
    assert os.listdir(target.parent) == []


@pytest.mark.parametrize("arrives", ["weights", "weight"])
def test_a_copy_is_what_was_there_or_is_not_kept(
    paths: RunPaths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arrives: str
) -> None:
    target = tmp_path / "elsewhere/new"

    class Copies(ToldMachine):
        def receive(self, source: str, target: Path) -> None:
            assert source == "/there/abcd"
            target.mkdir()
            (target / "model").write_text(arrives)

        def run(self, *_: object, **__: object) -> Completed:
            return Completed((), 0, b"1  job.json\n2  model\n", "")

    def here(*_: object, **__: object) -> Completed:
        digest = "2" if arrives == "weights" else "3"
        return Completed((), 0, f"1  job.json\n{digest}  model\n".encode(), "")

    monkeypatch.setattr(mirror, "place_of", lambda *_: (Copies(), "/there/abcd"))
    monkeypatch.setattr(type(HERE), "run", here)
    if arrives == "weights":
        mirror.copy(paths, run_of(paths), target)
        assert (target / "model").read_text() == arrives
    else:
        with pytest.raises(UserError, match="model in /there/abcd on"):
            mirror.copy(paths, run_of(paths), target)
        assert not target.exists()
