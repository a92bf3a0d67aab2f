"""Asks before the first run of a batch file that the user has not written."""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path

import typer

from batchfiles.slurm.script import LARGEST_BYTES
from trainjob.backends import project as projects
from trainjob.contract.errors import UserError
from trainjob.contract.paths import home
from trainjob.records.files import open_regular, read_first

_MOST_BYTES = 4_000_000


def agree_to_run(path: Path, *, yes: bool) -> bytes:
    """Return the content of a file, which is all that may run, once the user has agreed to it if it is another's.

    The user agrees to each content once. With `yes` the user has agreed. Raises UserError where no
    user can be asked and for a file that is too large, and typer.Abort for a no.
    """
    with open_regular(path) as stream:
        owner, raw = os.fstat(stream.fileno()).st_uid, stream.read(LARGEST_BYTES + 1)
    if len(raw) > LARGEST_BYTES:
        raise UserError(f"{path} is larger than {LARGEST_BYTES:,} bytes, which no batch file is", "name a batch file")
    whose = f"user {owner}" if owner != os.getuid() else projects.other_author(path)
    if whose is None:
        return raw
    known = home() / "rehearsed"
    digest = hashlib.sha256(raw).hexdigest()
    if not yes:
        if known.exists() and digest in read_first(known, _MOST_BYTES).decode().split():
            return raw
        what = f"{path} is {whose}'s, and would run as you, on copies of its project and your home"
        if not sys.stdin.isatty():
            raise UserError(what, "read it, then give --yes")
        typer.confirm(f"{what}. Run it?", abort=True, err=True)
    known.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with os.fdopen(os.open(known, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "w") as stream:
        stream.write(f"{digest}\n")
    return raw
