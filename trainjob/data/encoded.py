"""Encoded images read at random, where they lie, through an index that was made once.

For every sample, the index has the file that holds it, its place there, its height, width and label; for every file,
its size, time of change and sha256. A file is compared with the index whenever it is opened: with another size it is
refused; with another time its bytes decide.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Dict, Iterable, Iterator, List, NamedTuple, Tuple

import numpy as np

from trainjob.contract.errors import UserError
from trainjob.data import pictures
from trainjob.data.manifest import FileFacts
from trainjob.data.pictures import Box, DamagedImageError
from trainjob.data.writing import write_array, write_file
from trainjob.records.checkpoints import sha256_of

SAMPLES = np.dtype(
    [("file", "<u4"), ("label", "<u4"), ("offset", "<u8"), ("bytes", "<u8"), ("height", "<u4"), ("width", "<u4")]
)
# The names lie one after the other in a file of their own; `name_end` is where each ends.
FILES = np.dtype([("bytes", "<u8"), ("changed_ns", "<i8"), ("name_end", "<u8"), ("sha256", "u1", (32,))])


class IndexedFile(NamedTuple):
    """A file that holds samples, as it was when the index was made."""

    name: str  # relative to the root
    bytes: int
    changed_ns: int  # 0: the time says nothing, because the file belongs to the data set
    sha256: str


def write_index(staging: Path, split: str, samples: np.ndarray, files: Iterable[IndexedFile]) -> Dict[str, FileFacts]:
    """Write the index of one split and return what its manifest says of it."""
    table: List[Tuple[int, int, int, np.ndarray]] = []
    names: List[bytes] = []
    end = 0
    for file in files:
        names.append(os.fsencode(file.name))
        end += len(names[-1])
        table.append((file.bytes, file.changed_ns, end, np.frombuffer(bytes.fromhex(file.sha256), np.uint8)))
    return {
        "samples": write_array(staging / (split + "-samples.bin"), samples),
        "files": write_array(staging / (split + "-files.bin"), np.array(table, FILES)),
        "names": write_file(staging / (split + "-names.bin"), names),
    }


class EncodedImages:
    """The images of one split by number. Several threads may read at once."""

    def __init__(
        self, name: str, root: Path, shape: Tuple[int, ...], samples: np.ndarray, files: np.ndarray, names: np.ndarray
    ) -> None:
        self.shape = shape
        self._name, self._root = name, root
        self._samples, self._files, self._names = samples, files, names
        self._unchanged: Dict[int, int] = {}  # files whose time differs, but not their bytes: the time

    def __len__(self) -> int:
        """Return the number of images."""
        return len(self._samples)

    def sizes(self, indices: np.ndarray) -> Tuple[np.ndarray, np.ndarray]:
        """Return heights and widths of images `indices` (n,)."""
        chosen = self._samples[indices]
        return chosen["height"].astype(np.int64), chosen["width"].astype(np.int64)

    def part(self, index: int, box: Box, size: Tuple[int, int], mirrored: bool = False) -> np.ndarray:
        """Return the part `box` of image `index` as uint8 (channels, *size). Raises UserError, naming the file."""
        try:
            return pictures.decode(self.content(index), box, (self.shape[0], *size), mirrored)
        except DamagedImageError as error:
            raise UserError("%s can't be decoded: %s" % (self.where(index), error), self._cure()) from None

    def content(self, index: int) -> bytes:
        """Return the bytes of image `index`. Raises UserError if its file is not what was indexed."""
        sample = self._samples[index]
        number = int(sample["file"])
        path = self.path(number)
        try:
            with open(str(path), "rb") as stream:
                self._check(number, path, os.fstat(stream.fileno()))
                stream.seek(int(sample["offset"]))
                return stream.read(int(sample["bytes"]))
        except OSError as error:
            raise UserError(
                "data set %s reads %s, which can't be read: %s" % (self._name, path, error.strerror),
                self._cure(),
            ) from None

    def path(self, number: int) -> Path:
        """Return the path of file `number`."""
        start = int(self._files[number - 1]["name_end"]) if number else 0
        return self._root / os.fsdecode(bytes(self._names[start : int(self._files[number]["name_end"])]))

    def where(self, index: int) -> str:
        """Return the place of image `index` as messages name it."""
        sample = self._samples[index]
        path = str(self.path(int(sample["file"])))
        whole = int(sample["bytes"]) == int(self._files[int(sample["file"])]["bytes"])
        return path if whole else "the image at byte %d of %s" % (sample["offset"], path)

    def files(self) -> Iterator[IndexedFile]:
        """Yield the files that hold the images, as they were when the index was made."""
        for number, file in enumerate(self._files):
            name = str(self.path(number).relative_to(self._root))
            yield IndexedFile(name, int(file["bytes"]), int(file["changed_ns"]), bytes(file["sha256"]).hex())

    def check_files(self) -> None:
        """Read every byte of every file. Raises UserError at the first that is not what was indexed."""
        for number in range(len(self._files)):
            path = self.path(number)
            if not path.is_file():
                raise UserError("data set %s reads %s, which is missing" % (self._name, path), self._cure())
            self._check(number, path, path.stat(), reads_all=True)

    def _check(self, number: int, path: Path, facts: os.stat_result, reads_all: bool = False) -> None:
        file = self._files[number]
        if facts.st_size != file["bytes"]:
            raise self._stale(path, "%d bytes" % file["bytes"], "%d bytes" % facts.st_size)
        is_as_indexed = file["changed_ns"] in (0, facts.st_mtime_ns) or self._unchanged.get(number) == facts.st_mtime_ns
        if is_as_indexed and not reads_all:
            return
        expected, actual = bytes(file["sha256"]).hex(), sha256_of(path)
        if actual != expected:
            raise self._stale(path, "sha256 %s" % expected, "sha256 %s" % actual)
        self._unchanged[number] = facts.st_mtime_ns

    def _stale(self, path: Path, indexed: str, actual: str) -> UserError:
        return UserError(
            "%s has changed since data set %s was made: %s then, %s now" % (path, self._name, indexed, actual),
            self._cure(),
        )

    def _cure(self) -> str:
        return "Restore it, or run: trainjob data prepare %s --again, with the same --kind and --from" % self._name
