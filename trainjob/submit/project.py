"""The user's project: where its top is, which of its files a run takes along, and its state in git."""

from __future__ import annotations

import fnmatch
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from trainjob.contract.errors import UserError
from trainjob.submit import process

# Never copied, whatever git says: a run directory lies on shared storage and is shown to others.
SECRET_NAMES = (".env", ".env.*", "*.pem", "*.key", "*.p12", "*.pfx", "id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*")
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

    def record(self) -> dict[str, str | None]:
        """Return the commit and the difference of the working tree from it; None outside of git."""
        if not self.in_git:
            return {"top": str(self.top), "commit": None, "diff": None}
        return {"top": str(self.top), "commit": _git_commit(self.top), "diff": _git_diff(self.top)}


def find(working_folder: Path, asked: Path | None = None) -> Project:
    """Return the project: `asked`, else the git top level, else the working folder.

    Raises UserError when `asked` is no folder, or when it would be the whole home or disk.
    """
    if asked is not None and not asked.is_dir():
        raise UserError(f"--project {asked} is not a folder: give the top folder of your project")
    here = working_folder.resolve()
    git_top = _git_top(asked or here)
    top = asked.resolve() if asked else git_top or here
    if top in (Path.home().resolve(), Path(top.anchor)) and git_top != top:
        raise UserError(f"the project would be all of {top}: change into its folder, or give --project FOLDER")
    start = os.path.relpath(here, top) if here.is_relative_to(top) else "."
    return Project(top, start, in_git=git_top is not None)


def _git_top(folder: Path) -> Path | None:
    try:
        found = process.run(["git", "rev-parse", "--show-toplevel"], folder=folder, check=False)
    except process.CommandError:
        return None
    return Path(found.text.rstrip("\n")) if found.code == 0 else None


def _git_commit(top: Path) -> str | None:
    found = process.run(["git", "rev-parse", "HEAD"], folder=top, check=False)
    return found.text.strip() if found.code == 0 else None


def _git_diff(top: Path) -> str | None:
    # Secrets stay out of the record as they stay out of the copy.
    excluded = [f":(exclude,glob)**/{name}" for name in SECRET_NAMES]
    found = process.run(["git", "diff", "HEAD", "--", ".", *excluded], folder=top, check=False)
    return found.text if found.code == 0 else None


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
        reason = _reason_to_leave_out(project.top / name)
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
    which = ["--cached", "--others", "--exclude-standard"] if untracked else ["--cached"]
    listed = process.run(["git", "ls-files", "-z", *which], folder=project.top)
    yield from dict.fromkeys(os.fsdecode(name) for name in listed.stdout.split(b"\0") if name)


def _walked(top: Path) -> Iterator[str]:
    for folder, folders, names in os.walk(top):
        folders[:] = sorted(name for name in folders if name not in _NEVER)
        yield from (os.path.relpath(os.path.join(folder, name), top) for name in sorted(names))


def _reason_to_leave_out(path: Path) -> str | None:
    """Return why a file stays behind: "" for one that isn't there or is a submodule, None for one that goes along."""
    if any(fnmatch.fnmatch(path.name, pattern) for pattern in SECRET_NAMES):
        return "may hold a secret"
    if path.is_symlink():
        return None
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
        shutil.copy2(project.top / name, destination, follow_symlinks=False)
