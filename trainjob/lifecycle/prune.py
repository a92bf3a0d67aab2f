"""Removes old runs. The candidates are listed before anything is removed."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from trainjob.backends import mirror
from trainjob.contract import clock, states
from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths
from trainjob.lifecycle import ledger
from trainjob.lifecycle.lock import locked
from trainjob.observe import index
from trainjob.observe.status import Snapshot, status, statuses
from trainjob.records.submission import Submission

# Names of folders that `folder.create` is filling, or that `remove_run` is removing.
_LEFT = re.compile(r"\.[a-z2-7]{4}-[^/]*\.(?:(?P<pid>[0-9]+)\.part|removed)")


@dataclass(frozen=True)
class PrunableRun:
    """A run that can be removed, and the space it takes."""

    status: Snapshot
    size_bytes: int


def candidates(
    *,
    older_than: timedelta,
    in_states: frozenset[str],
    keep: int,
    warn: Callable[[str], None] = lambda _line: None,
) -> list[PrunableRun]:
    """Return the runs that have ended and are older than this, oldest first, without the newest `keep`.

    `warn` is called with a line about each run whose records don't tell its age.
    """
    every = statuses(index.every_run())
    for now in every:
        if now.submitted_at is None and now.damage:
            warn(f"run {now.id} stays, because its age is not known: {'; '.join(now.damage)}")
    ended = [now for now in every if now.state in states.ENDED]
    ended.sort(key=lambda now: now.submitted_at or "")
    latest = datetime.fromtimestamp(clock.time(), UTC) - older_than
    return [
        PrunableRun(now, size(now.folder))
        for now in ended[: max(0, len(ended) - keep)]
        if now.state in in_states
        and not now.is_held
        and now.submitted_at is not None
        and datetime.fromisoformat(now.submitted_at) <= latest
    ]


def leftovers(*, older_than: timedelta) -> list[Path]:
    """Return hidden folders that an interrupted submission or removal left beside runs, and that no process uses.

    They are in folders that contain, or contained, runs of the index.
    """
    latest = (datetime.fromtimestamp(clock.time(), UTC) - older_than).timestamp()
    hidden: list[Path] = []
    for folder in index.folders_of_runs():
        with contextlib.suppress(OSError):
            for entry in os.scandir(folder):
                name = _LEFT.fullmatch(entry.name)
                # A .part folder has the id of the process that fills it, perhaps on another machine that shares it.
                is_left = name is not None and (name["pid"] is None or not Path("/proc", name["pid"]).exists())
                facts = entry.stat(follow_symlinks=False)
                is_old = facts.st_uid == os.getuid() and facts.st_mtime <= latest
                if is_left and is_old and entry.is_dir(follow_symlinks=False):
                    hidden.append(Path(entry.path))
    return sorted(hidden)


def size(folder: Path | str) -> int:
    """Return the bytes of all files below a folder."""
    return sum(os.lstat(os.path.join(parent, name)).st_size for parent, _, names in os.walk(folder) for name in names)


def remove(chosen: Sequence[PrunableRun]) -> dict[str, UserError]:
    """Remove the runs' folders and index entries; return the error, by id, of each run that could not be removed.

    An interrupted removal leaves a folder that is no longer a run.
    """
    failures = {}
    for candidate in chosen:
        try:
            _remove_unless_resumed(candidate.status.paths)
        except UserError as error:
            failures[candidate.status.id] = error
    return failures


def _remove_unless_resumed(paths: RunPaths) -> None:
    """Remove a run that has ended, while no `resume` can start it again. Raises UserError if one has started it."""
    with contextlib.ExitStack() as held:
        try:
            held.enter_context(locked(paths, "trainjob prune"))
        except UserError as error:
            if error.problem.code == "locked":
                raise
            # A full disk takes no lock, and this makes room on it.
        now = status(paths)
        if now.state in states.ACTIVE:
            raise UserError(f"run {paths.id} is {now.state} by now", f"End it first: trainjob cancel {paths.id}")
        if now.is_held:
            raise UserError(
                f"the scheduler still has the job of run {paths.id}, and may start it again",
                f"Prune once it is gone, or end it: trainjob cancel {paths.id}",
            )
        ledger.release(now)  # a job that arrives now soon finds no run directory, and does nothing
        remove_run(paths, now.submission)


def remove_run(paths: RunPaths, submission: Submission | None) -> None:
    """Remove one run's folder, on this machine and on its own, and its index entry. Raises UserError if that fails."""
    ledger.settle(paths)
    mirror.remove(submission)
    # Rename first: a half-removed folder with the run's own name would look like a broken run.
    gone = paths.folder.with_name(f".{paths.folder.name}.removed")
    try:
        shutil.rmtree(gone, ignore_errors=True)
        paths.folder.replace(gone)
        if gone.is_symlink():
            gone.unlink()  # its target is not ours
        else:
            shutil.rmtree(gone)
        # The index last: a folder that it does not name would never be found.
        index.forget(paths.id)
    except OSError as error:
        why = f"{error.filename}: {error.strerror}" if error.filename else str(error)
        raise UserError(f"run {paths.id} can't be removed: {why}", "ask whoever owns it") from None


def forget_missing() -> list[str]:
    """Remove the runs whose folders are gone from the index, and return their ids.

    A run stays as long as a hidden folder of it does, because `leftovers` looks only where runs of the index are.
    """
    missing = index.missing().items()
    gone = [name for name, folder in missing if not (folder and any(folder.parent.glob(f".{folder.name}.*")))]
    for run_id in gone:
        index.forget(run_id)
    return gone
