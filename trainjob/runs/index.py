"""Where the runs are: one link a run in the user's data folder, whatever runs_dir each lies in."""

from __future__ import annotations

import os
import secrets
import string
import time
from collections.abc import Iterator
from pathlib import Path

import platformdirs

from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths

_ALPHABET = string.ascii_lowercase + "234567"
_NAME_CHARACTERS = frozenset(string.ascii_letters + string.digits + "-_.")
_LONGEST_NAME = 40


def home() -> Path:
    """Return trainjob's data folder of this user."""
    return platformdirs.user_data_path("trainjob")


def new_id(name: str) -> str:
    """Return a run id: four random letters, so that a short prefix is enough, and the job's name."""
    plain = "".join(character if character in _NAME_CHARACTERS else "-" for character in name)
    return f"{''.join(secrets.choice(_ALPHABET) for _ in range(4))}-{plain.strip('-.')[:_LONGEST_NAME] or 'job'}"


def add(paths: RunPaths) -> None:
    """Remember where a run lies."""
    folder = home() / "index"
    folder.mkdir(parents=True, exist_ok=True)
    link = folder / paths.id
    staging = folder / f".{paths.id}.{os.getpid()}"
    staging.symlink_to(paths.folder)
    staging.replace(link)


def forget(run_id: str) -> None:
    """Take a run out of the index; its folder is another matter."""
    (home() / "index" / run_id).unlink(missing_ok=True)


def ids() -> list[str]:
    """Return every run id, sorted; those whose folder is gone too."""
    try:
        return sorted(entry.name for entry in os.scandir(home() / "index") if not entry.name.startswith("."))
    except FileNotFoundError:
        return []


def every_run() -> Iterator[RunPaths]:
    """Yield the runs whose folders are there."""
    for run_id in ids():
        paths = RunPaths(os.readlink(home() / "index" / run_id))
        if paths.folder.is_dir():
            yield paths


def recent(within_s: float) -> Iterator[RunPaths]:
    """Yield the runs that were made within the last `within_s` seconds."""
    earliest = time.time() - within_s
    for run_id in ids():
        link = home() / "index" / run_id
        if link.lstat().st_mtime >= earliest:
            yield RunPaths(os.readlink(link))


def find(asked: str) -> RunPaths:
    """Return the run that `asked` names: an id, a unique prefix of one, `last`, or a path.

    Raises UserError for an unknown run, and for a prefix of several, naming them.
    """
    if "/" in asked or asked == ".":
        return _at(Path(asked))
    known = ids()
    if asked == "last":
        return _last()
    matching = [asked] if asked in known else [run_id for run_id in known if run_id.startswith(asked)]
    if len(matching) > 1:
        raise UserError(f"{asked} could be any of {', '.join(matching[:8])}: give one letter more")
    if not matching:
        raise UserError(f"no run is called {asked}: `trainjob list` shows the {len(known)} runs there are")
    return _existing(matching[0])


def _at(folder: Path) -> RunPaths:
    paths = RunPaths(folder.resolve())
    if not paths.job.is_file():
        raise UserError(f"{folder} is not a run directory: it has no {paths.job.name}")
    return paths


def _last() -> RunPaths:
    runs = list(every_run())
    if not runs:
        raise UserError("there are no runs yet: `trainjob submit --cluster local` makes one")
    return max(runs, key=lambda paths: paths.job.stat().st_mtime)


def _existing(run_id: str) -> RunPaths:
    paths = RunPaths(os.readlink(home() / "index" / run_id))
    if not paths.folder.is_dir():
        raise UserError(
            f"run {run_id} is in the index and its folder {paths.folder} is gone: `trainjob prune` forgets it"
        )
    return paths
