"""Removes old runs, by choice: what would be removed is known before anything is."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from trainjob.contract import states
from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths
from trainjob.runs import index
from trainjob.runs.status import Status, statuses
from trainjob.submit import mirror

# What folder.create and remove_run call a folder until it is whole, or gone.
_LEFT = re.compile(r"\.[a-z2-7]{4}-[^/]*\.(?:(?P<pid>[0-9]+)\.part|removed)")


@dataclass(frozen=True)
class Candidate:
    """A run that can be removed, and the space it takes."""

    status: Status
    size_bytes: int


def candidates(
    *,
    older_than: timedelta,
    in_states: frozenset[str],
    keep: int,
    warn: Callable[[str], None] = lambda _line: None,
) -> list[Candidate]:
    """Return the runs that have ended and are older, oldest first, without the newest `keep`.

    `warn` is called with a line about each run whose records don't tell its age.
    """
    every = statuses(index.every_run())
    for one in every:
        if one.submitted_at is None and one.damage:
            warn(f"run {one.id} stays, because its age is not known: {'; '.join(one.damage)}")
    ended = [one for one in every if one.state in states.ENDED]
    ended.sort(key=lambda one: one.submitted_at or "")
    latest = datetime.now(UTC) - older_than
    chosen = [one for one in ended[: max(0, len(ended) - keep)] if one.state in in_states and _before(one, latest)]
    return [Candidate(one, size(one.folder)) for one in chosen]


def _before(status: Status, latest: datetime) -> bool:
    return status.submitted_at is not None and datetime.fromisoformat(status.submitted_at) <= latest


def leftovers(*, older_than: timedelta) -> list[Path]:
    """Return hidden folders beside runs that an interrupted submission or removal has left, and nobody works on.

    They lie in the folders in which runs of the index lie or lay.
    """
    latest = (datetime.now(UTC) - older_than).timestamp()
    found = []
    for folder in sorted(index.folders_of_runs()):
        with contextlib.suppress(OSError):
            found += [
                Path(entry.path)
                for entry in os.scandir(folder)
                if entry.is_dir(follow_symlinks=False)
                and _is_left_over(entry.name)
                and entry.stat(follow_symlinks=False).st_uid == os.getuid()
                and entry.stat(follow_symlinks=False).st_mtime <= latest
            ]
    return sorted(found)


def _is_left_over(name: str) -> bool:
    match = _LEFT.fullmatch(name)
    if match is None:
        return False
    # Named by the process that makes it, on this machine or another that shares the folder.
    return match["pid"] is None or not Path("/proc", match["pid"]).exists()


def size(folder: Path | str) -> int:
    """Return the bytes of all files below a folder."""
    return sum(os.lstat(os.path.join(parent, name)).st_size for parent, _, names in os.walk(folder) for name in names)


def remove(chosen: Sequence[Candidate]) -> dict[str, UserError]:
    """Remove the runs' folders and forget them; return why, by id, for each that could not be removed.

    An interrupted removal leaves a folder that is no longer a run.
    """
    failures = {}
    for candidate in chosen:
        try:
            remove_run(RunPaths(candidate.status.folder))
        except UserError as error:
            failures[candidate.status.id] = error
    return failures


def remove_run(paths: RunPaths) -> None:
    """Remove one run's folder, here and where it ran, and forget it. Raises UserError where that fails."""
    mirror.remove(paths)
    # Renamed first: a half-removed folder under the run's own name would look like a broken run.
    gone = paths.folder.with_name(f".{paths.folder.name}.removed")
    try:
        shutil.rmtree(gone, ignore_errors=True)
        paths.folder.replace(gone)
        index.forget(paths.id)
        if gone.is_symlink():
            gone.unlink()  # what it leads to is not ours
        else:
            shutil.rmtree(gone)
    except OSError as error:
        why = f"{error.filename}: {error.strerror}" if error.filename else str(error)
        raise UserError(f"run {paths.id} can't be removed: {why}", "ask whoever owns it") from None


def forget_missing() -> list[str]:
    """Forget the runs whose folders are gone, and return their ids."""
    missing = index.missing()
    for run_id in missing:
        index.forget(run_id)
    return missing
