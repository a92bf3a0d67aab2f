"""Manifests of prepared data sets, which say what a folder of shards holds; readable without numpy."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Dict, Optional, Tuple, Union

from trainjob.contract.errors import UserError
from trainjob.records import typed
from trainjob.records.files import DamagedError, parse_json, read_small

FILE_NAME = "manifest.json"
FORMAT = 1
# What a data set holds. A manifest of raw images names no kind; other kinds have format 2, which older readers refuse.
IMAGES, ENCODED, TOKENS = "images", "encoded", "tokens"
_FORMATS = {IMAGES: FORMAT, ENCODED: 2, TOKENS: 2}
# Where a copy on a host's own disk has the files that an index names.
SOURCE = "source"
# Data sets small enough to travel with the package lie beside the code that reads them.
SHIPPED = Path(__file__).resolve().parent
# The data set that needs no preparing: where it is not there, the runtime makes one up that fits the task.
MADE_UP = "synthetic"
# Text that comes with Python: where it is not prepared, the runtime reads it from its own Python.
PYTHON_DOCS = "python-docs"
# Those that `trainjob data prepare NAME` makes without a named source.
BUILT_IN = ("digits", "cifar10", MADE_UP, PYTHON_DOCS)


class ManifestError(UserError):
    """A manifest can't be read, or is of a format that this trainjob does not know."""

    code = "manifest"


@dataclass(frozen=True)
class FileFacts:
    """One raw file of a data set: samples one after the other, no header."""

    file: str
    bytes: int
    sha256: str


@dataclass(frozen=True)
class SplitFacts:
    """One split. `files` has "images" and "labels"; or "tokens"; or, of encoded images, the parts of the index."""

    samples: int  # of tokens: how many there are, because the task chooses how many make a sample
    files: Dict[str, FileFacts]


@dataclass(frozen=True)
class Manifest:
    """The content of one prepared data set. An image becomes (image ÷ maximum − mean) ÷ std on the device."""

    name: str
    shape: Tuple[int, ...]  # channels, height, width of one image; empty for tokens
    dtype: str  # of the images: uint8; of tokens: uint16 or uint32
    label_dtype: str
    classes: int  # of tokens: the size of the vocabulary
    maximum: int  # the largest value an image can hold
    mean: Tuple[float, ...]  # one a channel, after the division by `maximum`
    std: Tuple[float, ...]
    splits: Dict[str, SplitFacts]
    source: str
    licence: str
    attribution: str
    format: int = FORMAT
    kind: str = IMAGES
    root: str = ""  # of encoded images: the folder of the files in the index; empty if they are in this one

    def to_json(self) -> str:
        """Return the bytes of manifest.json as text: the same manifest gives the same text."""
        fields = {**asdict(self), "format": _FORMATS[self.kind]}
        if self.kind == IMAGES:
            del fields["kind"]
        if self.kind != ENCODED:
            del fields["root"]
        return json.dumps(fields, indent=1, ensure_ascii=False, sort_keys=True) + "\n"


def read_manifest(folder: Path) -> Optional[Manifest]:
    """Return the manifest in `folder`; None if there is none. Raises ManifestError."""
    path = folder / FILE_NAME
    try:
        content = read_small(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except DamagedError as error:
        raise ManifestError("%s %s" % (path, error), "Prepare the data set again") from None
    return parse(content, str(path))


def parse(text: Union[str, bytes], where: str = FILE_NAME) -> Manifest:
    """Return the manifest in `text`. Raises ManifestError, naming both format numbers."""
    try:
        fields = parse_json(text)
    except DamagedError as error:
        raise ManifestError("%s %s" % (where, error), "Prepare the data set again") from None
    number, kind = (fields.get("format"), fields.get("kind", IMAGES)) if isinstance(fields, dict) else (None, IMAGES)
    if kind not in list(_FORMATS):
        raise ManifestError(
            "%s has kind %s and this trainjob reads %s" % (where, kind, ", ".join(_FORMATS)),
            "prepare the data set again with this trainjob",
        )
    if number != _FORMATS[kind]:
        raise ManifestError(
            "%s has format %s and this trainjob reads %d" % (where, number, _FORMATS[kind]),
            "prepare the data set again with this trainjob",
        )
    problem = ""
    try:
        manifest = typed.from_json(Manifest, fields)
        if manifest.kind != TOKENS and len(manifest.shape) != 3:
            problem = "shape is %s, expected a list of 3" % (list(manifest.shape),)
    except DamagedError as error:
        problem = str(error)
    if problem:
        raise ManifestError(
            "%s does not have the fields of format %d: %s" % (where, number, problem), "Prepare the data set again"
        )
    return manifest


def find(name: str, data_dir: Optional[Path]) -> Optional[Path]:
    """Return the folder of data set `name`: under `data_dir`, else as shipped; None if it is not prepared."""
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


def how_to_prepare(name: str) -> str:
    """Return the command that prepares a data set; for one of the user's own, with what only the user knows."""
    return "trainjob data prepare %s%s" % (name, "" if name in BUILT_IN else " --kind KIND --from SOURCE")


def not_prepared(name: str, data_dir: Optional[Path]) -> UserError:
    """Return the error that says where data set `name` was looked for, and the command that prepares it."""
    where = "TRAINJOB_DATA_DIR is not set" if data_dir is None else "%s has no %s/" % (data_dir, name)
    return UserError("data set %s is not prepared: %s" % (name, where), "Run: %s" % how_to_prepare(name))
