"""A back end that does what a test says, and remembers what it was told."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import cast

import pytest

from trainjob.backends import registry
from trainjob.backends.base import Answer, BackEnd, Liveness
from trainjob.cluster.slurm_text import Array
from trainjob.contract import states
from trainjob.contract.paths import RunPaths
from trainjob.records import submission as submissions
from trainjob.records.submission import Native, Submission

NEW: Native = {"job_id": "9"}


class Told:
    """A back end that does what `starts` does, and remembers what it was told."""

    def __init__(self, *, has_scheduler: bool = True) -> None:
        self.HAS_SCHEDULER = has_scheduler
        self.starts: Callable[[], Native] = lambda: NEW
        self.started: list[Submission | None] = []
        self.cancelled: list[Native | None] = []
        self.found: Native | None = None
        self.answer = Answer(Liveness.GONE, states.FAILED)
        self.folders: list[Path] = []
        self.grace_s: list[float] = []

    def fail(self, error: Exception) -> None:
        """Raise it at each start from now on."""

        def fails() -> Native:
            raise error

        self.starts = fails

    def refuse_folder(self, folder: Path) -> None:
        """Remember the folder."""
        self.folders.append(folder)

    def argv(
        self, paths: RunPaths, script: str, after: Sequence[RunPaths] = (), inside: str | None = None
    ) -> list[str]:
        assert inside is None
        return ["start", paths.id, script, *(one.id for one in after)]

    def start(self, paths: RunPaths, submission: Submission) -> Native:
        self.started.append(submissions.read(paths))
        return self.starts()

    def start_elements(
        self, paths: RunPaths, _: Submission | None, elements: Array, recorded: Mapping[int, Submission]
    ) -> dict[int, Native]:
        for number in elements.numbers:
            self.started.append(submissions.read(paths.of_element(number)))
        assert set(recorded) == set(elements.numbers)
        return {number: {**NEW, "element": number} for number in elements.numbers}

    def cancel(self, _paths: RunPaths, submission: Submission, grace_s: float) -> None:
        self.cancelled.append(submission.native)
        self.grace_s.append(grace_s)

    def ask(self, natives: Sequence[Native]) -> list[Answer]:
        if any("broken" in native for native in natives):
            raise LookupError("broken")
        return [self.answer for _ in natives]

    def look_for(self, _paths: RunPaths, _submission: Submission) -> Native | None:
        return self.found

    def identify(self, native: Native) -> dict[str, str]:
        return {"job_id": str(native["job_id"])}


def told_as(monkeypatch: pytest.MonkeyPatch, *names: str) -> Told:
    """Return a back end that is the one of these names."""
    back_end = Told()
    for name in names:
        monkeypatch.setitem(registry.BACK_ENDS, name, cast("BackEnd", back_end))
    return back_end
