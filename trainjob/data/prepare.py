"""Preparing data sets: `trainjob data prepare NAME` puts NAME under the data folder, whole or not at all."""

from __future__ import annotations

import difflib
import shutil
from pathlib import Path
from typing import Any, Callable, Dict, List, NamedTuple, Optional

from trainjob.contract.errors import UserError
from trainjob.contract.manifest import SHIPPED, Manifest, find, names, read_manifest
from trainjob.data import synthetic
from trainjob.data.checking import check, files_of
from trainjob.data.writing import write_data_set

# What a way of preparing is given: the staging folder, and its own options.
Way = Callable[..., Manifest]


class Listed(NamedTuple):
    """One line of `trainjob data list`."""

    name: str
    folder: Path
    samples: Dict[str, int]  # by split
    bytes: int


def _copy_shipped(staging: Path) -> Manifest:
    manifest = read_manifest(SHIPPED / "digits")
    assert manifest is not None, "the digits are part of the package"
    for facts in files_of(manifest):
        shutil.copyfile(str(SHIPPED / "digits" / facts.file), str(staging / facts.file))
    return manifest


def _make_synthetic(staging: Path, **sizes: Any) -> Manifest:
    return synthetic.fill(staging, synthetic.Sizes(**sizes))


# A new data set is a new row.
WAYS: Dict[str, Way] = {"digits": _copy_shipped, "synthetic": _make_synthetic}


def prepare(name: str, data_dir: Path, again: bool = False, **options: Any) -> Path:
    """Return the folder of data set `name` under `data_dir`, prepared unless it already is.

    `again` replaces what is there. Raises UserError for a name that is not known, DamagedData for one that is damaged.
    """
    way = WAYS.get(name)
    if way is None:
        raise _unknown(name)
    folder = data_dir / name
    if again:
        shutil.rmtree(str(folder), ignore_errors=True)
    if read_manifest(folder) is None:
        _write(folder, way, options)
    check_folder(folder)
    return folder


def _write(folder: Path, way: Way, options: Dict[str, Any]) -> None:
    try:
        write_data_set(folder, lambda staging: way(staging, **options))
    except OSError as error:
        raise UserError(
            "%s can't be written: %s. Give a folder with room that you may write to" % (folder, error)
        ) from None


def check_folder(folder: Path) -> Manifest:
    """Return the manifest of the data set in `folder` after reading every byte of it. Raises UserError."""
    manifest = read_manifest(folder)
    if manifest is None:
        raise UserError("%s is not a prepared data set: it has no manifest.json. Remove it and prepare again" % folder)
    check(folder, manifest)
    return manifest


def list_prepared(data_dir: Optional[Path]) -> List[Listed]:
    """Return the data sets that a run would find, by name."""
    return [_listed(name, data_dir) for name in names(data_dir)]


def _listed(name: str, data_dir: Optional[Path]) -> Listed:
    folder = find(name, data_dir)
    assert folder is not None
    manifest = read_manifest(folder)
    assert manifest is not None
    samples = {split: facts.samples for split, facts in manifest.splits.items()}
    return Listed(name, folder, samples, sum(facts.bytes for facts in files_of(manifest)))


def _unknown(name: str) -> UserError:
    near = difflib.get_close_matches(name, WAYS, 1)
    hint = "did you mean %s? " % near[0] if near else ""
    return UserError("there is no data set %s to prepare: %sknown are %s" % (name, hint, ", ".join(sorted(WAYS))))
