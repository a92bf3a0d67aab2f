"""Projects with and without git that the tests of submitting share."""

from __future__ import annotations

import os
from pathlib import Path

from tests.support.programs import ran

IDENTITY = ("-c", "user.name=me", "-c", "user.email=me@here", "-c", "protocol.file.allow=always")


def git(folder: Path, *arguments: str) -> str:
    ended = ran(["git", *IDENTITY, *arguments], folder=folder, code=0)
    return ended.stdout


def write(folder: Path, *names: str | bytes, text: str = "x\n") -> None:
    for name in names:
        path = Path(os.fsdecode(os.path.join(os.fsencode(folder), os.fsencode(name))))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def repository(folder: Path, *tracked: str | bytes) -> Path:
    """Make a git repository with one commit of the files `tracked`."""
    folder.mkdir(parents=True, exist_ok=True)
    git(folder, "init", "--quiet")
    write(folder, *tracked)
    git(folder, "add", "--all", "--force")
    git(folder, "commit", "--quiet", "--allow-empty", "--message", "first")
    return folder


def everything_below(folder: Path) -> set[str]:
    """Return all files and links below a folder, relative."""
    return {
        os.path.relpath(os.path.join(here, name), folder)
        for here, folders, names in os.walk(folder)
        for name in [*names, *(one for one in folders if os.path.islink(os.path.join(here, one)))]
    }
