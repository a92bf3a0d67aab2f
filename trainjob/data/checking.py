"""Finds the prepared data sets that a run would use, and checks whether one is whole.

Sizes are cheap and always checked; checksums read every byte.
"""

from __future__ import annotations

from pathlib import Path
from typing import Callable, Dict, Iterator, List, NamedTuple, Optional

from trainjob.contract import clock
from trainjob.contract.errors import UserError
from trainjob.data.manifest import FileFacts, Manifest, find, how_to_prepare, names, read_manifest
from trainjob.records.checkpoints import sha256_of

# Below this a run reads every byte before it starts: 64 MiB take about 0.2 s.
SMALL = 64 * 1024 * 1024
SAY_EVERY_S = 5.0

Say = Callable[[str], None]


class DamagedDataError(UserError):
    """A file of a prepared data set is missing, cut, or not the bytes that were prepared."""

    code = "damaged-data"


def check(folder: Path, manifest: Manifest) -> None:
    """Read every byte of the data set in `folder`. Raises DamagedDataError at the first file that differs."""
    for facts in files_of(manifest):
        check_size(folder, manifest.name, facts)
        digest = sha256_of(folder / facts.file)
        if digest != facts.sha256:
            raise _damaged(folder, manifest.name, facts, "sha256", facts.sha256, digest)


def check_folder(folder: Path) -> Manifest:
    """Return the manifest of the data set in `folder` after reading every byte of it. Raises UserError."""
    manifest = read_manifest(folder)
    if manifest is None:
        raise UserError(
            "%s is not a prepared data set: it has no manifest.json" % folder, "Remove it and prepare it again"
        )
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
    size = str(path.stat().st_size) if path.is_file() else "no file"
    if size != str(facts.bytes):
        raise _damaged(folder, name, facts, "bytes", str(facts.bytes), size)


def _damaged(folder: Path, name: str, facts: FileFacts, what: str, expected: str, actual: str) -> DamagedDataError:
    return DamagedDataError(
        "%s: expected %s %s, found %s" % (folder / facts.file, what, expected, actual),
        "Remove %s and run: %s" % (folder, how_to_prepare(name)),
    )


class WorkProgress:
    """Says how far long work has come, every few seconds."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self._reported_at = clock.monotonic()

    def __call__(self, text: str) -> None:
        """Say `text`, unless something was said a moment ago."""
        if clock.monotonic() - self._reported_at >= SAY_EVERY_S:
            self._reported_at = clock.monotonic()
            self._say(text)


class ListedDataSet(NamedTuple):
    """One line of `trainjob data list`."""

    name: str
    folder: Path
    samples: Dict[str, int]  # by split
    bytes: int


def list_prepared(data_dir: Optional[Path]) -> List[ListedDataSet]:
    """Return the data sets that a run would find, by name."""
    listed = []
    for name in names(data_dir):
        folder = find(name, data_dir)
        manifest = None if folder is None else read_manifest(folder)
        if folder is not None and manifest is not None:  # else it was removed while we look
            samples = {split: facts.samples for split, facts in manifest.splits.items()}
            listed.append(ListedDataSet(name, folder, samples, sum(facts.bytes for facts in files_of(manifest))))
    return listed
