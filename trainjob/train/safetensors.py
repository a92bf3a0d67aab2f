"""The safetensors layout, written and read with torch and the standard library: loading executes nothing.

A file is eight bytes (the header's length, little-endian), the header (JSON: name → dtype, shape, offsets), and the
tensors' bytes one after the other. Any tool that knows the layout can read it.
"""

from __future__ import annotations

import ctypes
import json
import struct
from pathlib import Path
from typing import Any, BinaryIO, Dict, List, Optional, Tuple

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


class BrokenFile(UserError):
    """A file is not of the safetensors layout, or is cut."""


def save(path: Path, tensors: Dict[str, Any], metadata: Optional[Dict[str, str]] = None) -> None:
    """Write `tensors` to `path`. Tensors that share memory are written once each; the file is not fsynced."""
    # Large types first, so that every tensor starts at a multiple of its own size.
    names = sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))
    header = _header([(name, tensors[name]) for name in names], metadata or {})
    with open(str(path), "wb") as stream:
        stream.write(struct.pack("<Q", len(header)) + header)
        for name in names:
            _write_bytes(stream, tensors[name].detach().cpu().contiguous())


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


def _write_bytes(stream: BinaryIO, tensor: Any) -> None:
    size = tensor.numel() * tensor.element_size()
    if size:
        # Straight from the tensor's memory, whatever its type: numpy has no bfloat16.
        stream.write(memoryview((ctypes.c_char * size).from_address(tensor.data_ptr())))


def load(path: Path) -> Dict[str, Any]:
    """Return the tensors in `path` by name, on the CPU. Raises BrokenFile."""
    with open(str(path), "rb") as stream:
        header, start = read_header(stream, path)
        return {name: _read_tensor(stream, path, name, entry, start) for name, entry in header.items()}


def read_header(stream: BinaryIO, path: Path) -> Tuple[Dict[str, Any], int]:
    """Return the header's entries without the metadata, and where the tensors' bytes begin. Raises BrokenFile."""
    first = stream.read(8)
    length = struct.unpack("<Q", first)[0] if len(first) == 8 else _LONGEST_HEADER + 1
    if length > _LONGEST_HEADER:
        raise BrokenFile("%s is not of the safetensors layout: its first eight bytes give no header length" % path)
    try:
        header = json.loads(stream.read(length))
        header.pop("__metadata__", None)
    except (ValueError, AttributeError):
        raise BrokenFile("%s is not of the safetensors layout: its header of %d bytes is no JSON" % (path, length)) from None
    return header, 8 + length


def _read_tensor(stream: BinaryIO, path: Path, name: str, entry: Dict[str, Any], start: int) -> Any:
    dtype = DTYPES.get(entry["dtype"])
    if dtype is None:
        raise BrokenFile("%s: tensor %s is of type %s, unknown to torch %s" % (path, name, entry["dtype"], torch.__version__))
    begin, end = entry["data_offsets"]
    stream.seek(start + begin)
    data = bytearray(stream.read(end - begin))
    shape = entry["shape"]
    expected = torch.Size(shape).numel() * torch.empty(0, dtype=dtype).element_size()
    if len(data) != end - begin or len(data) != expected:
        raise BrokenFile("%s: tensor %s needs %d bytes and the file has %d" % (path, name, expected, len(data)))
    if not data:
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(data, dtype=dtype).reshape(shape)
