"""The index of runs: one link in the user's data folder for each run in any runs_dir."""

from __future__ import annotations

import contextlib
import os
import string
from collections.abc import Iterator
from pathlib import Path

from trainjob.backends import folder as run_folder
from trainjob.contract import clock
from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths, home
from trainjob.observe import arrays
from trainjob.planning.words import quantity
from trainjob.records import job as jobs
from trainjob.records import roles as role_records
from trainjob.records.files import only_owner_writes

_ALPHABET = string.ascii_lowercase + "234567"
_NAME_CHARACTERS = frozenset(string.ascii_letters + string.digits + "-_.")
_LONGEST_NAME = 40
# How long a submission may take to copy its project into a run directory that the index names already.
_FILLED_WITHIN_S = 600.0


class IndexUnwritableError(UserError):
    """The index of runs can't be written."""

    code = "index"


def new_id(name: str) -> str:
    """Return a run id: four random letters, so that a short prefix is enough, and the job's name."""
    import secrets  # loads OpenSSL, which `list` and `render` don't need

    return f"{''.join(secrets.choice(_ALPHABET) for _ in range(4))}-{_name_in_id(name)}"


def _name_in_id(name: str) -> str:
    plain = "".join(character if character in _NAME_CHARACTERS else "-" for character in name)
    return plain.strip("-.")[:_LONGEST_NAME] or "job"


def name_of(run_id: str) -> str:
    """Return the job's name in a run id, as far as an id can contain it."""
    return run_id.partition("-")[2]


@only_owner_writes()
def add(paths: RunPaths) -> None:
    """Add a run to the index. Raises IndexUnwritableError."""
    link = _link(paths.id)
    staging = link.with_name(f".{paths.id}.{os.getpid()}")
    try:
        link.parent.mkdir(parents=True, exist_ok=True)
        staging.symlink_to(paths.folder)
        staging.replace(link)
    except OSError as error:
        raise IndexUnwritableError(
            f"the index of runs in {link.parent} can't be written ({error.strerror}), so run {paths.id} was not "
            "started",
            "set XDG_DATA_HOME to a folder that you may write",
        ) from None
    finally:
        with contextlib.suppress(OSError):
            staging.unlink()  # what an error or Ctrl-C has left


def _link(run_id: str) -> Path:
    return home() / "index" / run_id


def _target(run_id: str) -> RunPaths | None:
    """Return the run directory of a run in the index; None if the run is no longer in the index."""
    try:
        return RunPaths(os.readlink(_link(run_id)))
    except OSError:
        return None


def forget(run_id: str) -> None:
    """Remove a run from the index; its folder stays."""
    _link(run_id).unlink(missing_ok=True)


def ids() -> list[str]:
    """Return every run id, sorted, including those whose folder is gone."""
    return sorted(entry.name for entry in _entries())


def _entries() -> Iterator[os.DirEntry[str]]:
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        yield from (entry for entry in os.scandir(home() / "index") if not entry.name.startswith("."))


def every_run(foreign: list[UserError] | None = None, name: str | None = None) -> Iterator[RunPaths]:
    """Yield the runs, of a job of this name, whose folders exist and belong to this user.

    Why others are ignored is added to `foreign`: the folder is a link, belongs to others, or is open to others.
    """
    for paths in _existing_runs(name):
        why = _why_foreign(paths)
        if why is None:
            yield paths
        elif foreign is not None:
            foreign.append(why)


def _existing_runs(name: str | None = None) -> Iterator[RunPaths]:
    for run_id in ids():
        if name is not None and name_of(run_id) != name:
            continue
        paths = _target(run_id)
        # A colleague's run on shared storage may be unreadable, and is not ours to list.
        if paths is not None and os.path.isdir(paths.folder) and os.access(paths.folder, os.R_OK | os.X_OK):
            yield paths


def _why_foreign(paths: RunPaths) -> UserError | None:
    try:
        run_folder.refuse_foreign(paths.folder)
    except UserError as error:
        return error
    return None


def newest(most: int) -> Iterator[RunPaths]:
    """Yield at most `most` runs whose folders exist and belong to this user, the newest first."""
    listed = sorted(((_indexed_at(entry), entry.name) for entry in _entries()), reverse=True)
    for _, run_id in listed[:most]:
        paths = _target(run_id)
        if paths is not None and os.path.isdir(paths.folder) and _why_foreign(paths) is None:
            yield paths


def recent(within_s: float, name: str | None = None) -> Iterator[RunPaths]:
    """Yield the runs, of a job of this name, that were submitted within the last `within_s` seconds."""
    earliest = clock.time() - within_s
    yield from (paths for paths in every_run(name=name) if _indexed_at(_link(paths.id)) >= earliest)


def _indexed_at(link: Path | os.DirEntry[str]) -> float:
    try:
        return link.stat(follow_symlinks=False).st_mtime
    except FileNotFoundError:
        return 0.0


def folders_of_runs() -> set[Path]:
    """Return the folders that contain, or contained, runs of the index."""
    targets = (_target(run_id) for run_id in ids())
    return {home() / "runs", *(paths.folder.parent for paths in targets if paths is not None)}


def missing() -> dict[str, Path | None]:
    """Return the runs of the index whose folders are gone, or can't be read; but none that may be being submitted.

    The value is the folder that the index has for the run; None if its entry can't be read.
    """
    present, latest = {paths.id for paths in _existing_runs()}, clock.time() - _FILLED_WITHIN_S
    gone = {
        run_id: _target(run_id) for run_id in ids() if run_id not in present and _indexed_at(_link(run_id)) < latest
    }
    return {run_id: None if paths is None else paths.folder for run_id, paths in gone.items()}


def find(run: str) -> RunPaths:
    """Return the run that `run` names: an id or a unique prefix of one, a job's name, `last`, or a path.

    RUN:N is element N of an array. Raises UserError for an unknown run or element, and if several runs match, with
    their ids.
    """
    whole, colon, number = run.rpartition(":")
    if colon and number.isdecimal() and not Path(run).exists():
        return arrays.element(find(whole), int(number))
    if "/" in run or run in (".", ".."):
        return _at(Path(run))
    if run == "last":
        newest = max(every_run(), key=lambda paths: _indexed_at(_link(paths.id)), default=None)
        if newest is None:
            raise UserError("there are no runs yet", "`trainjob submit --cluster local` makes one")
        return newest
    if not run:
        raise UserError("no run is named", "give an id, its first letters, the job's name, `last`, or a path")
    run_id = _matching(run)
    paths = _target(run_id)
    if paths is None or not os.path.isdir(paths.folder):
        where = "" if paths is None else f" {paths.folder}"
        raise UserError(
            f"run {run_id} is in the index, but its folder{where} is gone", "`trainjob prune --yes` forgets it"
        )
    run_folder.refuse_foreign(paths.folder)
    return paths


def find_role(run: str, role: str | None, command: str) -> RunPaths:
    """Return the run that `run` names, or with `role` the folder of one of its servers.

    The role that needs the servers is the run itself. Raises UserError for an unknown run or role.
    """
    paths = find(run)
    arrays.refuse_whole(paths, command)
    if role is None:
        return paths
    servers = {one.folder.name: one for one in role_records.of_run(paths)}
    if role in servers:
        return servers[role]
    stated = jobs.read(paths.job).request.job.get("roles", {})
    if role not in stated:
        known = ", ".join(stated)
        cure = f"It has {known}" if known else "It has none: leave --role out"
        raise UserError(f"run {paths.id} has no role {role}", cure)
    return paths


def _matching(run: str) -> str:
    every = ids()
    if run in every:
        return run
    named = [run_id for run_id in every if name_of(run_id) == _name_in_id(run)]
    matching = named or [run_id for run_id in every if run_id.startswith(run)]
    if len(matching) > 1:
        newest = sorted(matching, key=lambda run_id: _indexed_at(_link(run_id)), reverse=True)
        more = f" and {len(newest) - 8} more" if len(newest) > 8 else ""
        raise UserError(f"{run} could be any of {', '.join(newest[:8])}{more}", "give more of the id")
    if not matching:
        raise UserError(f"no run is called {run}", f"`trainjob list` shows {quantity(len(every), 'run')}")
    return matching[0]


def _at(folder: Path) -> RunPaths:
    absolute = Path(os.path.abspath(folder))
    paths = RunPaths(absolute.parent.resolve() / absolute.name)
    if not paths.job.is_file():
        raise UserError(
            f"{folder} is not a run directory: it has no {paths.job.name}", "`trainjob list` shows the runs"
        )
    run_folder.refuse_foreign(paths.whole.folder)
    return paths
