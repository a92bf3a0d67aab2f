"""How far a rehearsal is, as it is printed while a long one runs."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from trainjob.rehearse import kinds


def at_work(folder: Path, elements: tuple[int, ...] = (), *, has_gpus: bool = False) -> Any:
    request = SimpleNamespace(elements=elements)
    return SimpleNamespace(folder=folder, has_gpus=has_gpus, request=request)


@pytest.mark.parametrize(
    ("files", "elements", "words"),
    [
        ({}, (), "the job has not started yet"),
        ({"attempt": "1", "state": "RUNNING"}, (), "attempt 1 is RUNNING"),
        (
            {"attempt": "2", "state": "RUNNING", "progress.json": '{"attempt": 2, "update": 7}'},
            (),
            "attempt 2 is RUNNING, update 7",
        ),
        (
            {"attempt": "2", "state": "REQUEUED", "progress.json": '{"attempt": 1, "update": 7}'},
            (),
            "attempt 2 is REQUEUED",
        ),
        (
            {"tasks/0/state": "COMPLETED", "tasks/2/state": "RUNNING"},
            (0, 1, 2),
            "array elements: 1 COMPLETED, 1 PENDING, 1 RUNNING",
        ),
    ],
)
def test_progress_is_read_from_the_run_directory(
    tmp_path: Path, files: dict[str, str], elements: tuple[int, ...], words: str
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text + "\n")
    assert kinds.progress(at_work(tmp_path, elements)) == words


def test_compiling_stand_in_gpus_is_named(tmp_path: Path) -> None:
    rehearsal = at_work(tmp_path, has_gpus=True)
    assert kinds.progress(rehearsal) == "stand-in GPUs are being made ready"
    (tmp_path / "job.json").touch()
    assert kinds.progress(rehearsal) == "the job has not started yet"


def test_what_only_stand_in_nodes_make_c10d_say_is_not_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    warning = b"socket.cpp:207] [c10d] The hostname of the client socket cannot be retrieved. err=-3\n"
    printed = [b"[0] loss 2\n", b"[0] [W1127 09:35:51.8 " + warning, b"[1] [c10d] another thing\n"]
    shown: list[bytes] = []
    # What a rank has printed since the last look is one piece.
    monkeypatch.setattr("trainjob.observe.logs.follow", lambda *_: iter([b"".join(printed)]))
    at_rehearsal: Any = SimpleNamespace(show=shown.append, folder=tmp_path)
    with kinds.output_shown(at_rehearsal):
        pass
    assert shown == [printed[0] + printed[2]]
