"""Asks before the first run of a batch file that the user has not written."""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path

import typer

from trainjob.backends import project as projects
from trainjob.contract.errors import UserError
from trainjob.contract.paths import home
from trainjob.records.files import read_first

_MOST_BYTES = 4_000_000


def agree_to_run(path: Path, *, yes: bool) -> None:
    """Return once the user has agreed to run a file of somebody else; each content is asked about once.

    With `yes` the user has. Raises UserError where nobody can be asked, and typer.Abort for a no.
    """
    whose = _author(path)
    if whose is None:
        return
    known = home() / "rehearsed"
    digest = hashlib.sha256(read_first(path, _MOST_BYTES)).hexdigest()
    if not yes:
        if known.exists() and digest in read_first(known, _MOST_BYTES).decode().split():
            return
        what = f"{path} is {whose}'s, and would run as you, on copies of its project and your home"
        if not sys.stdin.isatty():
            raise UserError(what, "read it, then give --yes")
        typer.confirm(f"{what}. Run it?", abort=True, err=True)
    known.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with os.fdopen(os.open(known, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "w") as stream:
        stream.write(f"{digest}\n")


def _author(path: Path) -> str | None:
    """Return who wrote a file, if not the user: its owner, or the author of its last commit."""
    owner = path.stat().st_uid
    if owner != os.getuid():
        return f"user {owner}"
    return projects.other_author(path)
