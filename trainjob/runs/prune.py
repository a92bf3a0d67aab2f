"""Removes old runs, by choice: what would go is a value before anything goes."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from trainjob.contract import states
from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths
from trainjob.runs import index
from trainjob.runs.status import Status, statuses
from trainjob.submit import mirror


@dataclass(frozen=True)
class Candidate:
    """A run that may go, and the space it takes."""

    status: Status
    size_bytes: int


def candidates(*, older_than: timedelta, in_states: frozenset[str], keep: int) -> list[Candidate]:
    """Return the ended runs that are older, newest `keep` excepted, oldest first."""
    ended = [one for one in statuses(index.every_run()) if one.state in states.ENDED]
    ended.sort(key=lambda one: one.submitted_at or "")
    latest = datetime.now(UTC) - older_than
    chosen = [one for one in ended[: max(0, len(ended) - keep)] if one.state in in_states and _before(one, latest)]
    return [Candidate(one, _size(one.folder)) for one in chosen]


def _before(status: Status, latest: datetime) -> bool:
    return status.submitted_at is not None and datetime.fromisoformat(status.submitted_at) <= latest


def _size(folder: str) -> int:
    return sum(os.lstat(os.path.join(parent, name)).st_size for parent, _, names in os.walk(folder) for name in names)


def remove(chosen: Sequence[Candidate]) -> None:
    """Remove the runs' folders and forget them; a cut removal leaves a folder that is no longer a run."""
    for candidate in chosen:
        remove_run(RunPaths(candidate.status.folder))


def remove_run(paths: RunPaths) -> None:
    """Remove one run's folder, here and where it ran, and forget it. Raises UserError where it can't be removed."""
    mirror.remove(paths)
    # Renamed first: a half-removed folder under the run's own name would look like a broken run.
    gone = paths.folder.with_name(f".{paths.folder.name}.removed")
    try:
        shutil.rmtree(gone, ignore_errors=True)
        paths.folder.replace(gone)
        index.forget(paths.id)
        shutil.rmtree(gone)
    except OSError as error:
        raise UserError(f"run {paths.id} can't be removed: {error.filename}: {error.strerror}") from None


def forget_missing() -> list[str]:
    """Forget the runs whose folders are gone, and return their ids."""
    present = {paths.id for paths in index.every_run()}
    missing = [run_id for run_id in index.ids() if run_id not in present]
    for run_id in missing:
        index.forget(run_id)
    return missing
