"""Manifests of prepared data sets: what lies in a folder of shards, readable without numpy."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Dict, Optional, Tuple

from trainjob.contract.errors import UserError

FILE_NAME = "manifest.json"
FORMAT = 1
# Data sets small enough to travel with the package lie beside the code that reads them.
SHIPPED = Path(__file__).resolve().parent.parent / "data"
# The data set that needs no preparing: where it is not there, the runtime makes one up that fits the task.
MADE_UP = "synthetic"


class ManifestError(UserError):
    """A manifest can't be read, or is of a format that this trainjob does not know."""


@dataclass(frozen=True)
class FileFacts:
    """One raw file of a data set: samples one after the other, no header."""

    file: str
    bytes: int
    sha256: str


@dataclass(frozen=True)
class SplitFacts:
    """One split. `files` has "images" and "labels"; further files of a split get names of their own."""

    samples: int
    files: Dict[str, FileFacts]


@dataclass(frozen=True)
class Manifest:
    """What one prepared data set holds. An image becomes (image ÷ maximum − mean) ÷ std on the device."""

    name: str
    shape: Tuple[int, int, int]  # channels, height, width of one image
    dtype: str  # of the images: uint8
    label_dtype: str
    classes: int
    maximum: int  # the largest value an image can hold
    mean: Tuple[float, ...]  # one a channel, after the division by `maximum`
    std: Tuple[float, ...]
    splits: Dict[str, SplitFacts]
    source: str
    licence: str
    attribution: str
    format: int = FORMAT

    def to_json(self) -> str:
        """Return the bytes of manifest.json as text: the same manifest gives the same text."""
        return json.dumps(asdict(self), indent=1, ensure_ascii=False, sort_keys=True) + "\n"


def read_manifest(folder: Path) -> Optional[Manifest]:
    """Return the manifest in `folder`; None where there is none. Raises ManifestError."""
    path = folder / FILE_NAME
    try:
        text = path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return None
    return parse(text, str(path))


def parse(text: str, where: str = FILE_NAME) -> Manifest:
    """Return the manifest in `text`. Raises ManifestError, naming both format numbers."""
    try:
        fields = json.loads(text)
    except ValueError as error:
        raise ManifestError("%s is not JSON: %s. Prepare the data set again" % (where, error)) from None
    number = fields.get("format") if isinstance(fields, dict) else None
    if number != FORMAT:
        raise ManifestError(
            "%s has format %s and this trainjob reads %d: prepare the data set again with this trainjob"
            % (where, number, FORMAT)
        )
    try:
        return _manifest(fields)
    except (TypeError, KeyError, AttributeError) as error:
        raise ManifestError(
            "%s does not have the fields of format %d: %s. Prepare the data set again" % (where, FORMAT, error)
        ) from None


def _manifest(fields: Dict[str, Any]) -> Manifest:
    splits = {name: _split(split) for name, split in fields["splits"].items()}
    sequences = {name: tuple(fields[name]) for name in ("shape", "mean", "std")}
    return Manifest(**dict(fields, splits=splits, **sequences))


def _split(fields: Dict[str, Any]) -> SplitFacts:
    files = {name: FileFacts(**facts) for name, facts in fields["files"].items()}
    return SplitFacts(samples=fields["samples"], files=files)


def find(name: str, data_dir: Optional[Path]) -> Optional[Path]:
    """Return the folder of data set `name`: under `data_dir`, else as shipped; None where it is not prepared."""
    candidates = [SHIPPED / name] if data_dir is None else [data_dir / name, SHIPPED / name]
    for folder in candidates:
        if (folder / FILE_NAME).is_file():
            return folder
    return None


def names(data_dir: Optional[Path]) -> Tuple[str, ...]:
    """Return the names of the data sets that `find` would find, sorted."""
    folders = [SHIPPED] if data_dir is None else [data_dir, SHIPPED]
    found = {path.parent.name for folder in folders for path in folder.glob("*/" + FILE_NAME)}
    return tuple(sorted(name for name in found if not name.startswith(".")))


def not_prepared(name: str, data_dir: Optional[Path]) -> UserError:
    """Return the error that says where data set `name` was looked for, and the command that prepares it."""
    where = "TRAINJOB_DATA_DIR is not set" if data_dir is None else "%s has no %s/" % (data_dir, name)
    return UserError("data set %s is not prepared: %s. Run: trainjob data prepare %s" % (name, where, name))
