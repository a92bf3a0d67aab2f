"""Arrays whose elements are steps of one job: which of them begin once more, in a job of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.clock import sleeps_skipped
from tests.support.run_folders import made, made_element, recorded, submission
from trainjob.backends.base import Answer, Liveness
from trainjob.backends.slurm import asking, backend, packs, steps
from trainjob.backends.slurm.asking import JobOfRun
from trainjob.cluster.slurm_text import parse_array
from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths
from trainjob.machines import remote_files
from trainjob.machines.process import Completed
from trainjob.records.files import write_json


def test_elements_begin_once_more_in_one_job_that_runs_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    native = {"job_id": "7", "folder": str(tmp_path / "abcd"), "host": None, "user": None}
    paths = made(tmp_path, "abcd", backend="packs", native=native)
    for number in (0, 2, 3):
        element = made_element(paths, number, "FAILED")
        of_element = {**native, "job_id": "8"} if number == 3 else native
        write_json(element.submission, submission({**of_element, "element": number}, "2026-01-01T00:00:00+00:00"))
    again = {number: recorded(paths.of_element(number)) for number in (0, 2)}
    asked: list[Any] = []

    def start_again(*of_run: object, **how: object) -> str:
        asked.append((*of_run, how))
        return "9"

    monkeypatch.setattr(backend, "start_again", start_again)
    natives = packs.start_elements(paths, recorded(paths), parse_array("0,2"), again)
    assert asked == [(paths, recorded(paths), again, {"arguments": ["elements=0,2"], "earlier": {"7", "8"}})]
    assert [(number, one["job_id"], one["folder"]) for number, one in natives.items()] == [
        (number, "9", str(paths.of_element(number).folder)) for number in (0, 2)
    ]


# --- One element.


@pytest.fixture
def element(tmp_path: Path) -> RunPaths:
    """Return element 3 of a run whose job is 7."""
    native = {"job_id": "7", "folder": str(tmp_path / "abcd"), "host": None, "user": None, "slurm_conf": None}
    found = made_element(made(tmp_path, "abcd", backend="packs", native=native), 3, "RUNNING")
    write_json(found.submission, submission({**native, "element": 3}, "2026-01-01T00:00:00+00:00"))
    return found


def test_an_element_is_that_of_the_job_that_is_found(element: RunPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[Any] = [None, {"job_id": "7"}]
    monkeypatch.setattr(backend, "look_for", lambda *_: found.pop(0))
    assert packs.look_for(element, recorded(element)) is None
    assert packs.look_for(element, recorded(element)) == {"job_id": "7", "element": 3}


class Machine:
    """One whose files are here, and on which nothing is signalled."""

    def __init__(self, state: str) -> None:
        self.state = state

    def run(self, _words: list[str], *, check: bool) -> Completed:
        assert not check
        return Completed((), 0, f"{self.state}\n".encode(), "")


@pytest.mark.parametrize("state", ["CANCELLED", "RUNNING"])
def test_a_cancel_of_an_element_ends_with_its_word_or_says_that_there_is_none(
    element: RunPaths, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    slept_s = sleeps_skipped(monkeypatch)
    written: list[tuple[str, str]] = []
    signals: list[list[str]] = []
    monkeypatch.setattr(JobOfRun, "machine", Machine(state))
    monkeypatch.setattr(remote_files, "write_word", lambda _, path, word: written.append((path, word)))
    monkeypatch.setattr(asking, "ask", lambda natives: [Answer(Liveness.ALIVE) for _ in natives])
    monkeypatch.setattr(steps, "steps_of", lambda _: ["7.3"])
    monkeypatch.setattr(backend, "scancel", lambda _, words, __: signals.append(words))
    if state == "CANCELLED":
        packs.cancel(element, recorded(element), 30.0)
        assert (slept_s, signals) == ([], [])
    else:
        with pytest.raises(UserError, match="its job 7 was asked to end it, and has not yet"):
            packs.cancel(element, recorded(element), 30.0)
        assert 30.0 + backend.END_S <= sum(slept_s) <= 31.0 + backend.END_S
        assert {*map(tuple, signals)} == {("--signal=KILL", "7.3")}
    assert written == [(f"{element.whole.folder}/{element.cancels.name}/3", "cancel")]
