"""Is a prepared data set whole? Sizes are cheap and always looked at; checksums read every byte."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Iterator

from trainjob.contract.errors import UserError
from trainjob.contract.manifest import FileFacts, Manifest, read_manifest

# Below this a run reads every byte before it starts: 64 MiB take about 0.2 s.
SMALL = 64 * 1024 * 1024
_CHUNK = 1 << 20


class DamagedDataError(UserError):
    """A file of a prepared data set is missing, cut, or not the bytes that were prepared."""


def check(folder: Path, manifest: Manifest) -> None:
    """Read every byte of the data set in `folder`. Raises DamagedDataError at the first file that differs."""
    for facts in files_of(manifest):
        check_size(folder, manifest.name, facts)
        found = sha256_of(folder / facts.file)
        if found != facts.sha256:
            raise _damaged(folder, manifest.name, facts, "sha256", facts.sha256, found)


def check_folder(folder: Path) -> Manifest:
    """Return the manifest of the data set in `folder` after reading every byte of it. Raises UserError."""
    manifest = read_manifest(folder)
    if manifest is None:
        raise UserError("%s is not a prepared data set: it has no manifest.json. Remove it and prepare again" % folder)
    check(folder, manifest)
    return manifest


def check_at_start(folder: Path, manifest: Manifest) -> None:
    """Check what a run can afford before it starts: every size, and every byte of a small data set."""
    for facts in files_of(manifest):
        check_size(folder, manifest.name, facts)
    if sum(facts.bytes for facts in files_of(manifest)) <= SMALL:
        check(folder, manifest)


def files_of(manifest: Manifest) -> Iterator[FileFacts]:
    """Yield every file of the data set."""
    for split in manifest.splits.values():
        yield from split.files.values()


def check_size(folder: Path, name: str, facts: FileFacts) -> None:
    """Raise DamagedDataError unless the file is there with the size that the manifest gives."""
    path = folder / facts.file
    found = str(path.stat().st_size) if path.is_file() else "no file"
    if found != str(facts.bytes):
        raise _damaged(folder, name, facts, "bytes", str(facts.bytes), found)


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of the file as hexadecimal digits."""
    digest = hashlib.sha256()
    with open(str(path), "rb") as stream:
        for chunk in iter(lambda: stream.read(_CHUNK), b""):
            digest.update(chunk)
    return digest.hexdigest()


def _damaged(folder: Path, name: str, facts: FileFacts, what: str, expected: str, found: str) -> DamagedDataError:
    return DamagedDataError(
        "%s: expected %s %s, found %s. Remove %s and run: trainjob data prepare %s"
        % (folder / facts.file, what, expected, found, folder, name)
    )
