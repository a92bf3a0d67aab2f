"""One archive, fetched and checked: what a killed fetch has left is gone on with."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from trainjob.contract.errors import UserError
from trainjob.contract.files import remove_if_there, sync_folder
from trainjob.data.checking import sha256_of
from trainjob.data.download import Say, download, is_url


class Fetched(NamedTuple):
    """Where the file is, and whether it had to be fetched."""

    path: Path
    changed: bool


def fetch(source: str, path: Path, sha256: str, say: Say) -> Fetched:
    """Return the file that `source` names: one on this host stays where it is, one at a URL comes to `path`.

    Raises UserError where it can't be read or fetched, or has another SHA-256 (none given: any will do).
    """
    if not is_url(source):
        return Fetched(_checked(Path(source).expanduser(), source, sha256), changed=False)
    if path.exists() and sha256 and sha256_of(path) == sha256.lower():
        return Fetched(path, changed=False)
    part = path.with_name(path.name + ".part")
    try:
        _fetch(source, part, sha256, say)
        os.replace(str(part), str(path))
        sync_folder(path.parent)
    except OSError as error:
        raise UserError("%s can't be written: %s. Make room there, or give another path" % (path, error)) from None
    return Fetched(path, changed=True)


def _fetch(source: str, part: Path, sha256: str, say: Say) -> None:
    part.parent.mkdir(parents=True, exist_ok=True)
    went_on = part.exists()
    download(source, part, say, go_on=True)
    try:
        _checked(part, source, sha256)
    except UserError:
        remove_if_there(part)
        if not went_on:
            raise
        say("what an earlier download has left is of another file: starting over")
        _fetch(source, part, sha256, say)


def _checked(path: Path, source: str, sha256: str) -> Path:
    try:
        found = sha256_of(path)
    except OSError as error:
        raise UserError("%s can't be read: %s" % (path, error.strerror)) from None
    if sha256 and found != sha256.lower():
        raise UserError(
            "%s is not the file asked for: its sha256 is %s, expected %s. Fetch it again, or put sha256: right"
            % (source, found, sha256)
        )
    return path
