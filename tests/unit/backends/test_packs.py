"""Arrays whose elements are steps of one job: which of them begin once more, in a job of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.run_folders import made, made_element, recorded, submission
from trainjob.backends.slurm import backend, packs
from trainjob.cluster.slurm_text import parse_array
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
