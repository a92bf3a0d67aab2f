"""Reads and writes the safetensors layout with torch and the standard library. Loading executes nothing.

`records.safetensors` describes the layout, and parses and writes its header.
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import BinaryIO, Dict, Iterable, Iterator, List, Optional, Sequence, Tuple, Union

import torch

from trainjob.contract.errors import UserError
from trainjob.records.checkpoints import write_durably
from trainjob.records.files import open_regular
from trainjob.records.safetensors import BrokenFileError, Piece, TensorPlace, header, pieces, read_header, whole_shape
from trainjob.train.recording.state import Tensors

# Types that an old torch lacks are left out there.
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


def save(path: Path, tensors: Tensors, metadata: Optional[Dict[str, str]] = None) -> None:
    """Write `tensors` to `path`, which is not fsynced. Tensors that share memory are written once each."""
    with open(str(path), "wb") as stream:
        for part in _parts(tensors, metadata or {}):
            stream.write(part)


def save_durably(path: Path, tensors: Tensors, metadata: Dict[str, str]) -> Dict[str, object]:
    """Write `tensors` to `path` and fsync the file, but not its folder. Return what an index says of it."""
    return write_durably(path, _parts(tensors, metadata))._asdict()


def _parts(tensors: Tensors, metadata: Dict[str, str]) -> Iterator[Union[bytes, memoryview]]:
    """Yield the bytes of a file that holds `tensors`, in order."""
    kinds: Dict[str, Tuple[str, Sequence[int]]] = {}
    for name, tensor in tensors.items():
        if tensor.dtype not in _WORDS:
            raise UserError(
                "tensor %s is of type %s, which the safetensors layout does not have" % (name, tensor.dtype),
                "keep it in the model as another type",
            )
        kinds[name] = _WORDS[tensor.dtype], tensor.shape
    beginning, names = header(kinds, metadata)
    yield beginning
    for name in names:
        tensor = tensors[name].detach().cpu().contiguous()
        # Straight from the tensor's memory, whatever its type: numpy has no bfloat16.
        size = tensor.numel() * tensor.element_size()
        yield memoryview((ctypes.c_char * size).from_address(tensor.data_ptr()) if size else b"")


def load(path: Path) -> Tensors:
    """Return the tensors in `path` by name, on the CPU. Raises BrokenFileError."""
    with open_regular(path) as stream:
        places, _ = read_header(stream, path)
        for place in places.values():
            _refuse_unknown(path, place)
        return {name: _read_tensor(stream, place) for name, place in places.items()}


class Stored:
    """A tensor in the parts of a checkpoint, which is read where it is indexed, by rows or with `...`."""

    def __init__(self, listed: List[Piece]) -> None:
        self._pieces = listed
        self.shape = torch.Size(whole_shape(listed))

    def __getitem__(self, which: object) -> torch.Tensor:
        """Return the rows of a slice without a step, or all of the tensor."""
        if not self.shape:
            return self._rows(self._pieces[0], 0, 1)
        start, end, _ = (which if isinstance(which, slice) else slice(None)).indices(self.shape[0])
        parts = []
        for piece in self._pieces:
            first, last = piece.first_row, piece.first_row + piece.place.shape[0]
            if max(start, first) < min(end, last) or (first == last == start):
                parts.append(self._rows(piece, max(start, first) - first, min(end, last) - first))
        if not parts:
            return torch.empty((0, *self.shape[1:]), dtype=DTYPES[self._pieces[0].place.dtype])
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    @staticmethod
    def _rows(piece: Piece, start: int, end: int) -> torch.Tensor:
        place = piece.place
        if place.shape:
            each = place.size // place.shape[0] if place.shape[0] else 0
            shape = [end - start, *place.shape[1:]]
            place = place._replace(shape=shape, start=place.start + start * each, size=(end - start) * each)
        with open_regular(piece.path) as stream:
            return _read_tensor(stream, place)


def stored(paths: Iterable[Path]) -> Dict[str, Stored]:
    """Return the tensors in the parts of a checkpoint by name. Raises BrokenFileError."""
    by_name = pieces(paths)
    for listed in by_name.values():
        for piece in listed:
            _refuse_unknown(piece.path, piece.place)
    return {name: Stored(listed) for name, listed in by_name.items()}


def _refuse_unknown(path: Path, place: TensorPlace) -> None:
    if place.dtype not in DTYPES:
        raise BrokenFileError("%s holds type %s, which torch %s lacks" % (path, place.dtype, torch.__version__))


def _read_tensor(stream: BinaryIO, place: TensorPlace) -> torch.Tensor:
    if not place.size:
        return torch.empty(place.shape, dtype=DTYPES[place.dtype])
    stream.seek(place.start)
    # A bytearray, because torch warns about memory that it may not write to.
    return torch.frombuffer(bytearray(stream.read(place.size)), dtype=DTYPES[place.dtype]).reshape(place.shape)
