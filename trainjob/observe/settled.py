"""What only schedulers know: jobs of interrupted submissions, and how jobs that are long forgotten have ended."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

from trainjob.backends import registry
from trainjob.backends.base import Answer, Liveness, read_submission
from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths
from trainjob.records.files import read_json, write_json

_FILE = ".settled.json"


def adopt_unknown(runs: Iterable[RunPaths]) -> None:
    """Look for the jobs of submissions whose outcome nobody knows, and write down those that exist."""
    # An element of an array was submitted with its run, unless it was resumed by itself.
    owners = {str(one.folder): one for one in (run if run.submission.is_file() else run.whole for run in runs)}
    for owner in owners.values():
        submission = read_submission(owner)
        if submission is not None and submission.native is None and submission.backend in registry.BACK_ENDS:
            with contextlib.suppress(UserError):
                registry.adopt(owner, submission)


def keep(paths: RunPaths, attempt: int, answer: Answer) -> None:
    """Write down how a job has ended, or that there is none any more, unless that is written already."""
    said = {"attempt": attempt, "state": answer.state, "note": answer.note}
    path = paths.folder / _FILE
    # The record of a run may be on a full disk, or somebody else's.
    with contextlib.suppress(OSError):
        if paths.folder.is_dir() and read_json(path) != said:
            write_json(path, said)


def answer(paths: RunPaths, attempt: int) -> Answer | None:
    """Return the last answer about the job of this attempt; None where none is written down."""
    said = read_json(paths.folder / _FILE)
    if not isinstance(said, dict) or said.get("attempt") != attempt:
        return None
    state, note = said.get("state"), said.get("note")
    return Answer(Liveness.GONE, state if isinstance(state, str) else None, note if isinstance(note, str) else None)
