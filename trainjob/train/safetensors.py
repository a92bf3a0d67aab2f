"""The safetensors layout, written and read with torch and the standard library: loading executes nothing.

A file is eight bytes (the header's length, little-endian), the header (JSON: name → dtype, shape, offsets), and the
tensors' bytes one after the other. Any tool that knows the layout can read it.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import json
import operator
import os
import struct
from pathlib import Path
from typing import Any, BinaryIO, Dict, Iterator, List, NamedTuple, Optional, Tuple, Union

import torch

from trainjob.contract.errors import UserError

# Types that a torch of 1.10 lacks are left out there.
_NAMES = {
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "BF16": "bfloat16",
    "I64": "int64",
    "I32": "int32",
    "I16": "int16",
    "I8": "int8",
    "U8": "uint8",
    "BOOL": "bool",
    "C64": "complex64",
    "U64": "uint64",
    "U32": "uint32",
    "U16": "uint16",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
}
DTYPES: Dict[str, torch.dtype] = {word: getattr(torch, name) for word, name in _NAMES.items() if hasattr(torch, name)}
_WORDS = {dtype: word for word, dtype in DTYPES.items()}
_ALIGNMENT = 8
_LONGEST_HEADER = 100 * 1024 * 1024


class BrokenFileError(UserError):
    """A file is not of the safetensors layout, or is cut."""


class Written(NamedTuple):
    """What a file was when it was written."""

    bytes: int
    sha256: str


def save(path: Path, tensors: Dict[str, Any], metadata: Optional[Dict[str, str]] = None) -> None:
    """Write `tensors` to `path`, which is not fsynced. Tensors that share memory are written once each."""
    with open(str(path), "wb") as stream:
        for part in _parts(tensors, metadata or {}):
            stream.write(part)


def save_durably(path: Path, tensors: Dict[str, Any], metadata: Dict[str, str]) -> Written:
    """Write `tensors` to `path`, fsynced, and return what the file is; its name in the folder is not fsynced."""
    # Hashed on the way: reading all of it again would take from the training's share of the cores.
    digest = hashlib.sha256()
    with open(str(path), "wb") as stream:
        for part in _parts(tensors, metadata):
            digest.update(part)
            stream.write(part)
        stream.flush()
        os.fsync(stream.fileno())
        return Written(stream.tell(), digest.hexdigest())


def _parts(tensors: Dict[str, Any], metadata: Dict[str, str]) -> Iterator[Union[bytes, memoryview]]:
    """Yield the bytes of a file that holds `tensors`, in order."""
    # Large types first, so that every tensor starts at a multiple of its own size.
    names = sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))
    header = _header([(name, tensors[name]) for name in names], metadata)
    yield struct.pack("<Q", len(header)) + header
    for name in names:
        tensor = tensors[name].detach().cpu().contiguous()
        yield _bytes(tensor)


def _header(tensors: List[Tuple[str, Any]], metadata: Dict[str, str]) -> bytes:
    entries: Dict[str, Any] = {"__metadata__": metadata} if metadata else {}
    start = 0
    for name, tensor in tensors:
        end = start + tensor.numel() * tensor.element_size()
        word = _WORDS.get(tensor.dtype)
        if word is None:
            raise UserError("tensor %s is of type %s, which the safetensors layout has not" % (name, tensor.dtype))
        entries[name] = {"dtype": word, "shape": list(tensor.shape), "data_offsets": [start, end]}
        start = end
    text = json.dumps(entries, ensure_ascii=False, separators=(",", ":")).encode()
    return text + b" " * (-len(text) % _ALIGNMENT)


def _bytes(tensor: Any) -> memoryview:
    # Straight from the tensor's memory, whatever its type: numpy has no bfloat16.
    size = tensor.numel() * tensor.element_size()
    return memoryview((ctypes.c_char * size).from_address(tensor.data_ptr()) if size else b"")


def load(path: Path) -> Dict[str, Any]:
    """Return the tensors in `path` by name, on the CPU. Raises BrokenFileError."""
    with open(str(path), "rb") as stream:
        places = read_header(stream, path)
        return {name: _read_tensor(stream, place) for name, place in places.items()}


class Place(NamedTuple):
    """Where a tensor lies in a file, and how it is to be read."""

    dtype: torch.dtype
    shape: List[int]
    start: int  # bytes from the beginning of the file
    size: int  # bytes


def read_header(stream: BinaryIO, path: Path) -> Dict[str, Place]:
    """Return where each tensor of the file lies. Raises BrokenFileError: of another layout, or cut."""
    whole = stream.seek(0, os.SEEK_END)
    stream.seek(0)
    first = stream.read(8)
    length = struct.unpack("<Q", first)[0] if len(first) == 8 else whole
    if length > min(whole - 8, _LONGEST_HEADER):
        raise BrokenFileError("%s is not of the safetensors layout, or cut: it has %d bytes" % (path, whole))
    try:
        entries = json.loads(stream.read(length))
        entries.pop("__metadata__", None)
        return {name: _place(entry, 8 + length, whole) for name, entry in entries.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BrokenFileError("%s has a header that is not of the safetensors layout: %s" % (path, error)) from None


def _place(entry: Dict[str, Any], data_start: int, whole: int) -> Place:
    dtype, shape, (begin, end) = DTYPES.get(entry["dtype"]), entry["shape"], entry["data_offsets"]
    if dtype is None:
        raise ValueError("type %s is unknown to torch %s" % (entry["dtype"], torch.__version__))
    if any(type(number) is not int or number < 0 for number in [*shape, begin, end]):
        raise ValueError("shape %s at bytes %s to %s" % (shape, begin, end))
    size = functools.reduce(operator.mul, shape, torch.empty(0, dtype=dtype).element_size())
    if end - begin != size or data_start + end > whole:
        raise ValueError("a tensor of %d bytes at bytes %d to %d of %d" % (size, begin, end, whole - data_start))
    return Place(dtype, shape, data_start + begin, size)


def _read_tensor(stream: BinaryIO, place: Place) -> Any:
    if not place.size:
        return torch.empty(place.shape, dtype=place.dtype)
    stream.seek(place.start)
    # A bytearray, because torch warns of memory that it may not write to.
    return torch.frombuffer(bytearray(stream.read(place.size)), dtype=place.dtype).reshape(place.shape)
