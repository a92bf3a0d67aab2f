"""What is written for TensorBoard, beside a package of that name that remembers what it is given."""

from __future__ import annotations

import json
import math
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tests.support.records import record
from tests.support.run_folders import made
from tests.support.runs_at_work import settings
from trainjob.contract import clock
from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths
from trainjob.lifecycle import tensorboard
from trainjob.lifecycle.tensorboard import Exported, history, to_tensorboard
from trainjob.records import metrics
from trainjob.records.job import ClusterRecord, RequestRecord


class Message(types.SimpleNamespace):
    """A protocol buffer: its fields, and `add` for those that are lists."""

    def __getattr__(self, name: str) -> Any:
        found: Any = Message()
        setattr(self, name, found)
        return found

    def add(self, **fields: Any) -> Message:
        self.added = Message(**fields)
        return self.added

    def append(self, value: object) -> None:
        self.last = value


class SessionLog(Message):
    START = 1


class Summary(Message):
    Value = Message


class Writer:
    """Fits EventFileWriter: a file for each, with a line an event."""

    every: ClassVar[list[Writer]] = []

    def __init__(self, folder: str) -> None:
        self.path = Path(folder) / f"events.out.tfevents.{len(self.every)}"
        self.path.touch()
        self.events: list[Any] = []
        self.is_closed = False
        self.every.append(self)

    def add_event(self, event: Any) -> None:
        self.events.append(event)

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def writers(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Writer]]:
    contents: dict[str, dict[str, Any]] = {
        "tensorboard": {},
        "tensorboard.compat": {},
        "tensorboard.compat.proto": {
            "event_pb2": types.SimpleNamespace(Event=Message, SessionLog=SessionLog),
            "summary_pb2": types.SimpleNamespace(Summary=Summary),
        },
        "tensorboard.summary": {},
        "tensorboard.summary.writer": {},
        "tensorboard.summary.writer.event_file_writer": {"EventFileWriter": Writer},
        "tensorboard.plugins": {},
        "tensorboard.plugins.hparams": {},
        "tensorboard.plugins.hparams.summary_v2": {"hparams_pb": dict},
        "tensorboard.plugins.text": {},
        "tensorboard.plugins.text.metadata": {"create_summary_metadata": Message},
    }
    for name, attributes in contents.items():
        module = types.ModuleType(name)
        vars(module).update(attributes)
        monkeypatch.setitem(sys.modules, name, module)
    Writer.every = []
    yield Writer.every
    Writer.every = []


@pytest.fixture
def paths(tmp_path: Path) -> RunPaths:
    return made(tmp_path, "abcd")


PHASES = {"data": 0.5, "compute": 1.5, "communication": 0.0, "checkpoint": 0.0}


def logged(paths: RunPaths, attempt: int, *updates: int, kind: str = "train", **more: Any) -> None:
    writer = metrics.Writer(paths, attempt)
    for update in updates:
        writer.append(kind, 1, update, {"loss": update / 10, "seconds": PHASES, **more})
    writer.close()


# --- Which figures.


def test_what_a_later_attempt_trained_again_is_left_out(paths: RunPaths) -> None:
    logged(paths, 1, 10, 20, 30)
    logged(paths, 2, 20, 30)
    logged(paths, 3, 30)
    found = list(history(paths).points())
    assert [(one.attempt, one.update) for one in found] == [(1, 10), (2, 20), (3, 30)]
    assert [(one.line, one.elapsed_s) for one in found] == [(1, 2.0), (4, 8.0), (6, 12.0)]
    assert [one.line for one in history(paths).points(after_line=4)] == [6]
    assert list(history(paths).points(after_line=6)) == []
    with pytest.raises(UserError, match=r"metrics\.jsonl has 6 lines, and 7 of this run were exported before"):
        list(history(paths).points(after_line=7))


def test_every_number_of_training_and_evaluation_has_a_name_of_its_kind(paths: RunPaths) -> None:
    logged(paths, 1, 10, accuracy=None, learning_rate=math.inf, metrics={"f1": 0.5, "large": 1e300})
    logged(paths, 1, 10, kind="evaluation", seconds=4.0, samples=360)
    logged(paths, 1, 10, kind="checkpoint", durable_s=1.0)
    logged(paths, 1, 20, kind="evaluation", seconds=-4.0)
    train, evaluation, last = history(paths).points()
    assert train.figures == {
        "train/epoch": 1.0,
        "train/loss": 1.0,
        "train/f1": 0.5,
        **{f"train/seconds_{phase}": seconds for phase, seconds in PHASES.items()},
    }
    assert evaluation.figures == {
        "evaluation/epoch": 1.0,
        "evaluation/loss": 1.0,
        "evaluation/samples": 360.0,
        "evaluation/seconds": 4.0,
    }
    assert (train.elapsed_s, evaluation.elapsed_s, last.elapsed_s) == (2.0, 6.0, 6.0)


# --- Which settings.


def test_settings_are_what_is_stated_and_what_was_worked_out_but_no_secret(paths: RunPaths) -> None:
    job = {"env": {"HF_TOKEN": "secret", "MODE": "fast"}, "seed": 7, "set": {"depth": 3}}
    request = RequestRecord(ClusterRecord("local", {"kind": "local"}), job)
    train = settings(instances=2, task_options={"width": 8}, schedule="cosine")
    paths.job.write_text(record(2, train=train, request=request).to_json())
    found = history(paths).settings
    assert "secret" not in str(found)
    assert (found["env.MODE"], found["set.depth"], found["set.width"]) == ("fast", 3, 8)
    assert (found["cluster"], found["engine"], found["device"], found["instances"]) == ("local", "ddp", "CPU", 2)
    assert (found["schedule"], found["seed"]) == ("cosine", 0)
    assert "command" not in found
    assert "updates" not in found, "what is not known is left out"
    assert list(found) == sorted(found)


def test_settings_of_a_command_have_its_words_and_lists_are_one_text(paths: RunPaths) -> None:
    job = {"command": ["python", "a b"], "env": {}}
    request = RequestRecord(ClusterRecord("local", {"kind": "local"}), job)
    paths.job.write_text(record(2, command=["python", "a b"], request=request).to_json())
    found = history(paths).settings
    assert found["command"] == "python 'a b'"
    assert "global_batch" not in found


def test_places_are_those_that_a_run_has(paths: RunPaths) -> None:
    found = history(paths)
    assert found.places == {"run directory": str(paths.folder), "metrics": str(paths.metrics), "logs": str(paths.logs)}
    assert (found.name, found.state, found.began_at_s) == ("abcd", "COMPLETED", 1767225600.0)
    paths.submission.unlink()
    assert history(paths).began_at_s == paths.job.stat().st_mtime


# --- Written.


def texts(event: Any) -> str:
    return str(event.summary.value.added.tensor.string_val.last.decode())


def test_an_export_adds_what_is_new(paths: RunPaths, writers: list[Writer], tmp_path: Path) -> None:
    logged(paths, 1, 10, 20)
    target = str(tmp_path / "log")
    folder = tmp_path / "log/abcd"
    assert to_tensorboard(history(paths), target) == Exported(str(folder), 2)
    (writer,) = writers
    start, first, second, described, parameters = writer.events
    began = history(paths).began_at_s
    assert (start.session_log.status, start.step, start.wall_time) == (1, 10, began + 2.0)
    assert (first.step, first.wall_time) == (10, began + 2.0)
    assert {one.tag: one.simple_value for one in first.summary.value}["train/loss"] == 1.0
    assert (second.step, second.wall_time) == (20, began + 4.0)
    assert described.step == 20
    assert described.summary.value.added.tensor.tensor_shape.dim.added.size == 1
    assert abs(described.wall_time - clock.time()) < 1000
    assert parameters.summary == dict(history(paths).settings)
    assert writer.is_closed
    assert json.loads((folder / "trainjob-export.json").read_text())["lines"] == 2
    # Nothing is new: no file.
    assert to_tensorboard(history(paths), target) == Exported(str(folder), 0)
    assert len(writers) == 1
    logged(paths, 2, 30)
    assert to_tensorboard(history(paths), target).lines == 1
    assert [event.step for event in writers[1].events] == [30, 30], "the first of an attempt takes back the rest"
    logged(paths, 2, 40)
    to_tensorboard(history(paths), target)
    assert [event.step for event in writers[2].events] == [40]
    paths.state.write_text("FAILED\n")
    to_tensorboard(history(paths), target)
    assert "| state | FAILED |" in texts(writers[3].events[0])


@pytest.mark.usefixtures("writers")
def test_what_was_exported_is_known_and_a_damaged_record_is_none(paths: RunPaths, tmp_path: Path) -> None:
    logged(paths, 1, 10)
    to_tensorboard(history(paths), str(tmp_path / "log"))
    kept = tmp_path / "log/abcd/trainjob-export.json"
    assert json.loads(kept.read_text())["began_at_s"] == 1767225600.0
    kept.write_text("[]")
    assert to_tensorboard(history(paths), str(tmp_path / "log")).lines == 1


@pytest.mark.usefixtures("writers")
def test_nothing_of_a_value_is_a_mark_or_html(paths: RunPaths, writers: list[Writer], tmp_path: Path) -> None:
    request = RequestRecord(ClusterRecord("local", {"kind": "local"}), {"env": {"A": "<b>|x|\n"}})
    paths.job.write_text(record(2, command=["true"], request=request).to_json())
    to_tensorboard(history(paths), str(tmp_path / "log"))
    assert "| env.A | &#60;b&#62;&#124;x&#124;&#10; |" in texts(writers[0].events[0])
    assert texts(writers[0].events[0]).startswith("| | |\n|---|---|\n| state | COMPLETED |\n")


@pytest.mark.usefixtures("writers")
def test_an_element_lies_in_the_folder_of_its_array(paths: RunPaths, tmp_path: Path) -> None:
    found = history(paths)
    for name, where in (("abcd:3", "abcd/3"), ("a/b é", "a-b--"), ("a-b_c.d", "a-b_c.d")):
        one = tensorboard.History(paths, name, "X", 0.0, found.settings, found.places)
        assert to_tensorboard(one, str(tmp_path / "log")).place == str(tmp_path / "log" / where)


@pytest.mark.usefixtures("writers")
def test_a_place_that_can_not_be_written_is_said(paths: RunPaths, tmp_path: Path) -> None:
    (tmp_path / "log").touch()
    with pytest.raises(UserError, match=r"--tensorboard .*log/abcd can't be written: Not a directory"):
        to_tensorboard(history(paths), str(tmp_path / "log"))


def test_without_the_package_its_installation_is_named(
    paths: RunPaths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(UserError, match="--tensorboard needs the package tensorboard") as refused:
        to_tensorboard(history(paths), str(tmp_path / "log"))
    assert refused.value.problem.code == "missing-package"
