"""Images in Parquet files, and in the Arrow files of Hugging Face's `save_to_disk`: their rows and bytes.

Row groups are compressed, so rows can't be read at random fast enough for training: such data sets are stored resized
or packed.
"""

from __future__ import annotations

import functools
import importlib
import itertools
import sys
import threading
from collections import OrderedDict
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Tuple

from trainjob.contract.errors import UserError
from trainjob.data.listing import ImagePlace, ListedImages, Listing, split_of

_IMAGE = ("image", "img", "jpg", "png", "picture")
_LABEL = ("label", "labels", "fine_label", "cls", "target")
_KEPT = 2  # row groups in memory


class _Columns(NamedTuple):
    image: str
    label: str


def parquet(root: Path) -> ListedImages:
    """Return the rows of all .parquet and .arrow files below `root`. Raises UserError, naming what does not fit."""
    _arrow("pyarrow")
    files: Dict[str, List[str]] = {}
    for path in sorted((*root.rglob("*.parquet"), *root.rglob("*.arrow"))):
        name = str(path.relative_to(root))
        if not path.name.startswith("cache-"):  # what Hugging Face keeps of transformations
            files.setdefault(split_of(Path(name)), []).append(name)
    if "train" not in files:
        raise UserError("%s has no .parquet and no .arrow files to train on" % root, "correct --from")
    reader = _Reader(root)
    splits: Dict[str, Listing] = {}
    for split, names in files.items():
        places = [
            ImagePlace(number, row, 0, label)
            for number, name in enumerate(names)
            for row, label in enumerate(reader.labels(name))
        ]
        splits[split] = Listing(names, places, functools.partial(reader.image, names))
    return ListedImages(splits, 1 + max(place.label for listing in splits.values() for place in listing.places))


def _arrow(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        raise UserError(
            "Parquet and Arrow files are read by pyarrow, which %s does not have" % sys.executable,
            "%s -m pip install pyarrow" % sys.executable,
        ) from None


class _Reader:
    """Reads rows in about their order: the last few row groups stay in memory."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._schema: Tuple[str, Dict[str, str]] = ("", {})  # of the first file
        self._columns = _Columns("", "")
        self._starts: Dict[str, List[int]] = {}  # the first row of each row group, and the number of rows
        self._groups: OrderedDict[Tuple[str, int], Any] = OrderedDict()
        self._lock = threading.Lock()

    def labels(self, name: str) -> List[int]:
        """Return the label of every row of the file `name`. Raises UserError for another schema."""
        try:
            opened = self._open(name)
            schema = opened.schema_arrow if hasattr(opened, "schema_arrow") else opened.schema
            self._check(name, {field.name: str(field.type) for field in schema})
            if hasattr(opened, "read_row_group"):  # Parquet
                sizes = [opened.metadata.row_group(group).num_rows for group in range(opened.num_row_groups)]
            else:  # a table of Arrow's
                sizes = [opened.num_rows]
            self._starts[name] = [0, *itertools.accumulate(sizes)]
            groups = [self._table(opened, at, self._columns.label) for at in range(len(self._starts[name]) - 1)]
            labels = [label for group in groups for label in group.column(0).to_pylist()]
        except (OSError, ValueError) as error:  # pyarrow's own are of these kinds
            raise UserError("%s can't be read: %s" % (self._root / name, error), "fetch it again") from None
        if any(label is None or label < 0 for label in labels):
            raise UserError(
                "%s has rows without a label, or with one below 0" % (self._root / name), "correct the file"
            )
        return labels

    def image(self, names: List[str], place: ImagePlace) -> bytes:
        """Return the encoded image at `place` in one of the files `names`; nothing if there is none."""
        name, row = names[place.file], place.offset
        starts = self._starts[name]
        group = next(at for at in range(len(starts) - 1) if row < starts[at + 1])
        with self._lock:
            if (name, group) not in self._groups:
                self._groups[name, group] = self._table(self._open(name), group, self._columns.image)
                while len(self._groups) > _KEPT:
                    self._groups.popitem(last=False)
            table = self._groups[name, group]
        value = table.column(0)[row - starts[group]].as_py()
        content: bytes = (value.get("bytes") if isinstance(value, dict) else value) or b""
        return content

    def _open(self, name: str) -> Any:
        path = str(self._root / name)
        if name.endswith(".parquet"):
            return _arrow("pyarrow.parquet").ParquetFile(path)
        return _arrow("pyarrow.ipc").open_stream(_arrow("pyarrow").memory_map(path)).read_all()

    @staticmethod
    def _table(opened: Any, group: int, column: str) -> Any:
        if hasattr(opened, "read_row_group"):
            return opened.read_row_group(group, columns=[column])
        return opened.select([column])

    def _check(self, name: str, schema: Dict[str, str]) -> None:
        if not self._schema[0]:
            image = [column for column in _IMAGE if "binary" in schema.get(column, "")]
            label = [column for column in _LABEL if "int" in schema.get(column, "")]
            if not image or not label:
                columns = ", ".join("%s (%s)" % pair for pair in schema.items())
                raise UserError(
                    "%s has columns %s; expected are encoded images in one of %s and whole numbers in one of %s"
                    % (self._root / name, columns, ", ".join(_IMAGE), ", ".join(_LABEL)),
                    "rename its columns",
                )
            self._columns, self._schema = _Columns(image[0], label[0]), (name, schema)
        for column in self._columns:
            first = self._schema[1][column]
            if schema.get(column) != first:
                raise UserError(
                    "%s has column %s of type %s, and %s has %s"
                    % (self._root / name, column, schema.get(column, "none"), self._schema[0], first),
                    "Remove the file, or write it with the schema of the others",
                )
