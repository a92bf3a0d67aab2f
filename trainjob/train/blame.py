"""Describes an unexpected error in one line: which task failed, and where in the user's code."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Optional

from trainjob.contract.paths import RunPaths
from trainjob.records import job as contract_job

_HINT = "_trainjob_hint"
_OURS = str(Path(__file__).resolve().parent.parent)


def describe_task_failure(error: BaseException, paths: RunPaths) -> str:
    """Return one line for an unexpected error: the task, the place in its file, the error."""
    place = _place_in_project(error, paths) or _place_in_task(error)
    kind, hint = type(error).__name__, getattr(error, _HINT, "")
    if place is None:
        return "task %s: %s during training%s; its traceback is above" % (_task(paths), kind, hint)
    return "task %s raised %s in %s%s; its traceback is above" % (_task(paths), kind, place, hint)


def add_hint(error: BaseException, hint: str) -> None:
    """Attach a hint to an error that passes through, for its description."""
    setattr(error, _HINT, " (%s)" % hint)


def _task(paths: RunPaths) -> str:
    try:
        settings = contract_job.read(paths.job).train
    except contract_job.ContractError:
        return "?"
    return "?" if settings is None else settings.task


def _place_in_project(error: BaseException, paths: RunPaths) -> Optional[str]:
    """Return the innermost place in the user's project that the error passed."""
    project = str(paths.project.resolve())
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if frame.filename.startswith(project):
            return "%s (%s, line %s)" % (frame.name, Path(frame.filename).relative_to(project), frame.lineno)
    return None


def _place_in_task(error: BaseException) -> Optional[str]:
    """Return the innermost place outside of this package; it may be in torch."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if not frame.filename.startswith(_OURS):
            return "%s (%s, line %s)" % (frame.name, frame.filename, frame.lineno)
    return None
