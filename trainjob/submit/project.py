"""The user's project: where its top is, which of its files a run takes along, and its state in git."""

from __future__ import annotations

import fnmatch
import functools
import os
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePath

from trainjob.contract.errors import UserError
from trainjob.submit import process

# Never copied, whatever git says: a run directory lies on shared storage and is shown to others.
# A folder of such a name counts with all that is in it; upper and lower case are the same.
SECRET_NAMES = (
    *(".env", ".env.*", "*.env", ".netrc", ".pypirc"),
    *("*.pem", "*.key", "*.p12", "*.pfx", "id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*"),
)
# Folders that no project means when git isn't there to say so.
_NEVER = {".git", ".hg", ".svn", ".venv", "venv", "node_modules", "__pycache__", ".mypy_cache", ".pytest_cache", ".tox"}
DATA_FILE_MB = 10
_TOTAL_MB = 500
_MB = 1024 * 1024


@dataclass(frozen=True)
class Project:
    """A project as a run records it. `start` is the working folder, relative to `top`."""

    top: Path
    start: str
    in_git: bool
    secrets_file: str | None = None  # the cluster's, relative to `top`; None where it lies elsewhere

    def record(self) -> dict[str, str | None]:
        """Return the commit and the difference of the working tree from it; None outside of git."""
        if not self.in_git:
            return {"top": str(self.top), "commit": None, "diff": None}
        return {"top": str(self.top), "commit": _git_commit(self.top), "diff": _git_diff(self)}


def find(working_folder: Path, asked: Path | None = None, secrets_file: str | None = None) -> Project:
    """Return the project: `asked`, else the git top level, else the working folder.

    `secrets_file` is the cluster's: should it lie in the project, it stays there. Raises UserError when `asked`
    is no folder, when the project would be the whole home or disk, and where git trusts nobody.
    """
    if asked is not None and not asked.is_dir():
        raise UserError(f"--project {asked} is not a folder: give the top folder of your project")
    here = working_folder.resolve()
    git_top = _git_top(asked or here)
    top = asked.resolve() if asked else git_top or here
    if top in (Path.home().resolve(), Path(top.anchor)) and git_top != top:
        raise UserError(f"the project would be all of {top}: change into its folder, or give --project FOLDER")
    start = os.path.relpath(here, top) if here.is_relative_to(top) else "."
    return Project(top, start, in_git=git_top is not None, secrets_file=_within(top, secrets_file))


def _within(top: Path, secrets_file: str | None) -> str | None:
    if secrets_file is None:
        return None
    path = Path(os.path.expanduser(secrets_file)).resolve()
    return os.path.relpath(path, top) if path.is_relative_to(top) else None


def _git_top(folder: Path) -> Path | None:
    try:
        found = process.run(["git", "rev-parse", "--show-toplevel"], folder=folder, check=False)
    except process.CommandError:
        return None
    if "safe.directory" in found.stderr:
        # Taken for a plain folder, it would be copied whole.
        raise UserError(f"git does not trust {folder}, so the project's files can't be listed. {found.stderr.strip()}")
    return Path(os.fsdecode(found.stdout).removesuffix("\n")) if found.code == 0 else None


def _git_commit(top: Path) -> str | None:
    found = process.run(["git", "rev-parse", "HEAD"], folder=top, check=False)
    return found.text.strip() if found.code == 0 else None


def _git_diff(project: Project) -> str | None:
    # As `git apply` reads it, whatever the user's configuration makes of a diff on a terminal.
    plain = ["--no-color", "--no-ext-diff", "--no-textconv"]
    arguments = ["git", "diff", "HEAD", *plain, "--", ".", *_without_secrets(project)]
    found = process.run(arguments, folder=project.top, check=False)
    if len(found.stdout) > DATA_FILE_MB * _MB:
        return f"above {DATA_FILE_MB} MB, so it is not kept"
    return found.text if found.code == 0 else None


def _without_secrets(project: Project) -> Iterator[str]:
    """Yield git's words for all that stays out of the record, as it stays out of the copy."""
    for name in SECRET_NAMES:
        yield f":(exclude,glob,icase)**/{name}"
        yield f":(exclude,glob,icase)**/{name}/**"
    if project.secrets_file is not None:
        yield f":(exclude,literal){project.secrets_file}"


@dataclass(frozen=True)
class Selection:
    """Relative paths of the files to copy, and of those left out, each with the reason."""

    files: tuple[str, ...]
    left_out: tuple[tuple[str, str], ...]


def select(project: Project, *, untracked: bool = False) -> Selection:
    """Return what of the project a run takes along.

    In git: what `git ls-files` names, untracked files by choice. Never secrets, nor files above
    10 MB, which are data. Raises UserError when the rest is above 500 MB.
    """
    files: list[str] = []
    left_out: list[tuple[str, str]] = []
    total = 0
    for name in _named(project, untracked):
        reason = _reason_to_leave_out(project, name)
        if reason is None:
            files.append(name)
            total += (project.top / name).lstat().st_size
        elif reason:
            left_out.append((name, reason))
    if total > _TOTAL_MB * _MB:
        raise UserError(
            f"project {project.top} has {total // _MB} MB of files and a run takes at most {_TOTAL_MB} MB: "
            "give --project for the part that is code"
        )
    return Selection(tuple(files), tuple(left_out))


def _named(project: Project, untracked: bool) -> Iterator[str]:
    if not project.in_git:
        yield from _walked(project.top)
        return
    yield from _listed(project.top, "--cached", "--recurse-submodules")
    if untracked:
        yield from _outside_of_runs(project.top, _listed(project.top, "--others", "--exclude-standard"))


def _listed(top: Path, *which: str) -> Iterator[str]:
    listed = process.run(["git", "ls-files", "-z", *which], folder=top)
    # A file in conflict is listed once a side.
    yield from dict.fromkeys(os.fsdecode(name) for name in listed.stdout.split(b"\0") if name)


def _outside_of_runs(top: Path, names: Iterable[str]) -> Iterator[str]:
    is_run = functools.cache(_is_run)
    for name in names:
        if not any(is_run(top / folder) for folder in PurePath(name).parents[:-1]):
            yield name


def _walked(top: Path) -> Iterator[str]:
    for folder, folders, names in os.walk(top):
        here = Path(folder)
        links = [name for name in folders if (here / name).is_symlink()]
        folders[:] = sorted(name for name in folders if name not in _NEVER and not _is_run(here / name))
        yield from (os.path.relpath(here / name, top) for name in sorted([*names, *links]))


def _is_run(folder: Path) -> bool:
    """Return whether `folder` is a run directory: a run that took earlier runs along would double with each."""
    return (folder / "job.json").is_file() and (folder / "code" / "trainjob").is_dir()


def _is_secret(project: Project, name: str) -> bool:
    parts = name.lower().split("/")
    named = any(fnmatch.fnmatchcase(part, pattern) for part in parts for pattern in SECRET_NAMES)
    return named or name == project.secrets_file


def _reason_to_leave_out(project: Project, name: str) -> str | None:
    """Return why a file stays behind: "" for one that isn't there, None for one that goes along."""
    path = project.top / name
    if not os.path.lexists(path):
        return ""
    if _is_secret(project, name):
        return "may hold a secret"
    if path.is_symlink():
        return None
    if path.is_dir():
        return "a git repository of its own that is no submodule, or is not checked out"
    if not path.is_file():
        return ""
    if path.stat().st_size > DATA_FILE_MB * _MB:
        return f"above {DATA_FILE_MB} MB, so it counts as data"
    return None


def copy(project: Project, selection: Selection, target: Path) -> None:
    """Copy the selected files below `target`, links as links."""
    (target / project.start).mkdir(parents=True, exist_ok=True)
    for name in selection.files:
        destination = target / name
        destination.parent.mkdir(parents=True, exist_ok=True)
        _copy_file(project.top / name, destination)


def _copy_file(source: Path, destination: Path) -> None:
    try:
        shutil.copy2(source, destination, follow_symlinks=False)
    except (PermissionError, FileNotFoundError) as error:
        if error.filename != os.fspath(source):
            raise
        reason = f"can't be read ({error.strerror})"
        raise UserError(f"project file {source} {reason}: put it right, and submit again") from None
