"""The header of a safetensors file: where each tensor is. Reads and writes it; knows nothing of torch or numpy.

A file is eight bytes (the header's length, little-endian), the header (JSON: name → dtype, shape, offsets), and the
tensors' bytes one after the other. Any tool that knows the layout can read it.
"""

from __future__ import annotations

import functools
import json
import operator
import os
import struct
from pathlib import Path
from typing import Any, BinaryIO, Dict, Iterable, List, Mapping, NamedTuple, Sequence, Tuple

from trainjob.contract.errors import UserError
from trainjob.records.files import DamagedError, open_regular, parse_json

# The layout's name of a type -> bytes of one value.
SIZES = {
    "F64": 8,
    "I64": 8,
    "U64": 8,
    "C64": 8,
    "F32": 4,
    "I32": 4,
    "U32": 4,
    "F16": 2,
    "BF16": 2,
    "I16": 2,
    "U16": 2,
    "I8": 1,
    "U8": 1,
    "BOOL": 1,
    "F8_E4M3": 1,
    "F8_E5M2": 1,
}
_ALIGNMENT = 8
_LONGEST_HEADER = 100 * 1024 * 1024
METADATA = "__metadata__"
ROWS = "rows"  # metadata of a part: the first row and the number of all rows of each tensor that it has some rows of


class BrokenFileError(UserError):
    """A file is not in the safetensors layout, or is truncated."""

    code = "broken-safetensors"


class TensorPlace(NamedTuple):
    """The position of a tensor in a file, and how to read it."""

    dtype: str  # a key of SIZES
    shape: List[int]
    start: int  # bytes from the beginning of the file
    size: int  # bytes


def header(tensors: Mapping[str, Tuple[str, Sequence[int]]], metadata: Mapping[str, str]) -> Tuple[bytes, List[str]]:
    """Return the beginning of a file that holds `tensors`, and their names in the order in which their bytes follow.

    `tensors` has the type, a key of SIZES, and the shape of each by name.
    """
    # Large types first, so that every tensor starts at a multiple of its own size.
    names = sorted(tensors, key=lambda name: (-SIZES[tensors[name][0]], name))
    entries: Dict[str, object] = {METADATA: metadata} if metadata else {}
    end = 0
    for name in names:
        dtype, shape = tensors[name]
        start, end = end, end + functools.reduce(operator.mul, shape, SIZES[dtype])
        entries[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [start, end]}
    text = json.dumps(entries, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    return struct.pack("<Q", len(text)) + text, names


def read_header(stream: BinaryIO, path: Path) -> Tuple[Dict[str, TensorPlace], Any]:
    """Return where each tensor of the file is, and the metadata.

    Raises BrokenFileError for another layout or a truncated file.
    """
    whole = stream.seek(0, os.SEEK_END)
    stream.seek(0)
    first = stream.read(8)
    length = struct.unpack("<Q", first)[0] if len(first) == 8 else whole
    if length > min(whole - 8, _LONGEST_HEADER):
        raise BrokenFileError("%s is not in the safetensors layout, or is truncated: it has %d bytes" % (path, whole))
    try:
        entries: Dict[str, Any] = parse_json(stream.read(length))
        metadata = entries.pop(METADATA, {})
        return {name: _place(entry, 8 + length, whole) for name, entry in entries.items()}, metadata
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BrokenFileError("%s has a header that is not in the safetensors layout: %s" % (path, error)) from None


def _place(entry: Dict[str, Any], data_start: int, whole: int) -> TensorPlace:
    dtype, shape, (begin, end) = entry["dtype"], entry["shape"], entry["data_offsets"]
    if dtype not in SIZES:
        raise ValueError("type %s is unknown" % dtype)
    if any(type(number) is not int or number < 0 for number in [*shape, begin, end]):
        raise ValueError("shape %s at bytes %s to %s" % (shape, begin, end))
    size = functools.reduce(operator.mul, shape, SIZES[dtype])
    if end - begin != size or data_start + end > whole:
        raise ValueError("a tensor of %d bytes at bytes %d to %d of %d" % (size, begin, end, whole - data_start))
    return TensorPlace(dtype, shape, data_start + begin, size)


def read_metadata(path: Path) -> Dict[str, Any]:
    """Return the metadata of a file whose header is sound. Raises DamagedError for another layout, and OSError."""
    with open_regular(path) as stream:
        try:
            metadata = read_header(stream, path)[1]
        except BrokenFileError as error:
            raise DamagedError(str(error)) from None
    if not isinstance(metadata, dict):
        raise DamagedError("%s has metadata that is not an object" % path.name)
    return metadata


class Piece(NamedTuple):
    """The position of some rows of a tensor; the pieces of a tensor follow each other along its first dimension."""

    path: Path
    place: TensorPlace
    first_row: int


def pieces(paths: Iterable[Path]) -> Dict[str, List[Piece]]:
    """Return the pieces of each tensor in the parts of a model, in order. Raises BrokenFileError where rows lack."""
    collected: Dict[str, List[Piece]] = {}
    rows: Dict[str, int] = {}
    for path in paths:
        with open_regular(path) as stream:
            places, metadata = read_header(stream, path)
        parted: Any = parse_json(metadata.get(ROWS, "{}").encode())
        for name, place in places.items():
            first, rows[name] = parted.get(name, (0, place.shape[0] if place.shape else 1))
            collected.setdefault(name, []).append(Piece(path, place, first))
    for name, listed in collected.items():
        listed.sort(key=lambda piece: piece.first_row)
        end = 0
        for piece in listed:
            if piece.first_row != end:
                break
            end += piece.place.shape[0] if piece.place.shape else 1
        if end != rows[name]:
            raise BrokenFileError("%s has %d rows, and %d of them are in its files" % (name, rows[name], end))
    return collected


def whole_shape(listed: List[Piece]) -> List[int]:
    """Return the shape of the tensor that `listed` are the pieces of."""
    shape = listed[0].place.shape
    return [sum(piece.place.shape[0] for piece in listed), *shape[1:]] if shape else []
