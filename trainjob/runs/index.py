"""Where the runs are: one link a run in the user's data folder, whatever runs_dir each lies in."""

from __future__ import annotations

import os
import string
import time
from collections.abc import Iterator
from pathlib import Path

import platformdirs

from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths
from trainjob.runs import arrays

_ALPHABET = string.ascii_lowercase + "234567"
_NAME_CHARACTERS = frozenset(string.ascii_letters + string.digits + "-_.")
_LONGEST_NAME = 40


def home() -> Path:
    """Return trainjob's data folder of this user."""
    return platformdirs.user_data_path("trainjob")


def new_id(name: str) -> str:
    """Return a run id: four random letters, so that a short prefix is enough, and the job's name."""
    import secrets  # loads OpenSSL: `list` and `render` do without

    plain = "".join(character if character in _NAME_CHARACTERS else "-" for character in name)
    return f"{''.join(secrets.choice(_ALPHABET) for _ in range(4))}-{plain.strip('-.')[:_LONGEST_NAME] or 'job'}"


def add(paths: RunPaths) -> None:
    """Remember where a run lies. Raises UserError when the index can't be written."""
    link = _link(paths.id)
    staging = link.with_name(f".{paths.id}.{os.getpid()}")
    try:
        link.parent.mkdir(parents=True, exist_ok=True)
        staging.symlink_to(paths.folder)
        staging.replace(link)
    except OSError as error:
        raise UserError(
            f"the index of runs in {link.parent} can't be written ({error.strerror}), so run {paths.id} was not "
            "started: set XDG_DATA_HOME to a folder that you may write"
        ) from None


def _link(run_id: str) -> Path:
    return home() / "index" / run_id


def _target(run_id: str) -> RunPaths | None:
    """Return where a run of the index lies; None once it is forgotten, perhaps since the caller looked."""
    try:
        return RunPaths(os.readlink(_link(run_id)))
    except OSError:
        return None


def forget(run_id: str) -> None:
    """Take a run out of the index; its folder is another matter."""
    _link(run_id).unlink(missing_ok=True)


def ids() -> list[str]:
    """Return every run id, sorted; those whose folder is gone too."""
    try:
        return sorted(entry.name for entry in os.scandir(home() / "index") if not entry.name.startswith("."))
    except (FileNotFoundError, NotADirectoryError):
        return []


def every_run() -> Iterator[RunPaths]:
    """Yield the runs whose folders are there."""
    for run_id in ids():
        paths = _target(run_id)
        # A colleague's run on shared storage may be closed to us, and is not ours to list.
        if paths is not None and paths.folder.is_dir() and os.access(paths.folder, os.R_OK | os.X_OK):
            yield paths


def recent(within_s: float) -> Iterator[RunPaths]:
    """Yield the runs that were made within the last `within_s` seconds."""
    earliest = time.time() - within_s
    yield from (paths for paths in every_run() if _submitted_at(paths) >= earliest)


def _submitted_at(paths: RunPaths) -> float:
    try:
        return _link(paths.folder.name).lstat().st_mtime
    except FileNotFoundError:
        return 0.0


def find(asked: str) -> RunPaths:
    """Return the run that `asked` names: an id, a unique prefix of one, `last`, or a path; RUN:N is task N of an array.

    Raises UserError for an unknown run or task, and for a prefix of several, naming them.
    """
    run, colon, number = asked.rpartition(":")
    if colon and number.isdecimal() and not Path(asked).exists():
        return arrays.task(find(run), int(number))
    if "/" in asked or asked in (".", ".."):
        return _at(Path(asked))
    if asked == "last":
        return _last()
    if not asked:
        raise UserError("no run is named: give an id, the first letters of one, `last`, or a path")
    return _existing(_matching(asked))


def _matching(asked: str) -> str:
    known = ids()
    matching = [asked] if asked in known else [run_id for run_id in known if run_id.startswith(asked)]
    if len(matching) > 1:
        more = f" and {len(matching) - 8} more" if len(matching) > 8 else ""
        raise UserError(f"{asked} could be any of {', '.join(matching[:8])}{more}: give one letter more")
    if not matching:
        raise UserError(f"no run is called {asked}: `trainjob list` shows the {len(known)} runs there are")
    return matching[0]


def _at(folder: Path) -> RunPaths:
    paths = RunPaths(folder.resolve())
    if not paths.job.is_file():
        raise UserError(f"{folder} is not a run directory: it has no {paths.job.name}")
    return paths


def _last() -> RunPaths:
    runs = list(every_run())
    if not runs:
        raise UserError("there are no runs yet: `trainjob submit --cluster local` makes one")
    return max(runs, key=_submitted_at)


def _existing(run_id: str) -> RunPaths:
    paths = _target(run_id)
    if paths is None or not paths.folder.is_dir():
        where = "" if paths is None else f" {paths.folder}"
        raise UserError(
            f"run {run_id} is in the index and its folder{where} is gone: `trainjob prune --yes` forgets it"
        )
    return paths
