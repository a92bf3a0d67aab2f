"""Tensors in mapped files, compared without a copy of them, whatever the order of their elements."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from trainjob.records import safetensors

if TYPE_CHECKING:
    import numpy.typing as npt

SIZES = {**safetensors.SIZES, "C128": 16}
_FLOATS = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4"}
_BLOCK = 1 << 20  # elements of two tensors that are compared at once


@dataclass(eq=False)
class Storage:
    """The bytes that one tensor or several views share, which are compared once however many views there are."""

    data: memoryview
    _compared: tuple[Storage, range] | None = field(default=None, repr=False)

    def apart(self, other: Storage) -> range:
        """Return the bytes from the first to the last that differ; all bytes where one storage is longer."""
        if self._compared is None or self._compared[0] is not other:
            self._compared = (other, self._compare(other))
        return self._compared[1]

    def _compare(self, other: Storage) -> range:
        if self.data.nbytes != other.data.nbytes:
            return range(max(self.data.nbytes, other.data.nbytes))
        first, last, begin = None, 0, 0
        for one, two in _blocks(self._words(), other._words()):
            if not (same := one == two).all():
                places = (~same).nonzero()[0]
                first, last = begin + int(places[0]) if first is None else first, begin + int(places[-1])
            begin += len(one)
        word = self._words().itemsize
        return range(0) if first is None else range(first * word, (last + 1) * word)

    def _words(self) -> npt.NDArray[Any]:
        import numpy as np

        word = 8 if self.data.nbytes % 8 == 0 else 1
        return np.ndarray((self.data.nbytes // word,), f"u{word}", self.data)


@dataclass(frozen=True, eq=False)
class SavedTensor:
    """A tensor in a file: its type as safetensors names it, and where its elements are in a storage (in elements)."""

    dtype: str
    shape: tuple[int, ...]
    storage: Storage
    offset: int
    stride: tuple[int, ...]

    def same(self, other: SavedTensor) -> bool:
        """Return whether both have the same type, shape and bits."""
        if (self.dtype, self.shape) != (other.dtype, other.shape):
            return False
        if not math.prod(self.shape):
            return True
        apart = self.storage.apart(other.storage)
        if (self.offset, self.stride) == (other.offset, other.stride) and not self._touches(apart):
            return True
        pair = self._with(other)
        return pair is not None and all((one == two).all() for one, two in _blocks(*pair))

    def largest_difference(self, other: SavedTensor) -> float | None:
        """Return the largest difference between elements of two tensors of one shape; None if they are no numbers."""
        import numpy as np

        if self.dtype != other.dtype or self.dtype not in _FLOATS or not math.prod(self.shape):
            return None
        pair, kind = self._with(other), _FLOATS[self.dtype]
        if pair is None:
            return None
        with np.errstate(all="ignore"):  # where one is infinite, so is the difference, or it is none
            blocks = ((one.view(kind).astype("f8"), two.view(kind).astype("f8")) for one, two in _blocks(*pair))
            return max(float(np.max(np.abs(one - two))) for one, two in blocks)

    def _with(self, other: SavedTensor) -> tuple[npt.NDArray[Any], npt.NDArray[Any]] | None:
        """Return the elements of both, of one shape; None if they are more than any file of theirs holds."""
        import numpy as np

        if self._overlaps() or other._overlaps():
            return None
        one, two = np.broadcast_arrays(self._elements(), other._elements())
        return None if one.nbytes > max(self.storage.data.nbytes, other.storage.data.nbytes) else (one, two)

    def _touches(self, places: range) -> bool:
        """Return whether its elements lie among these bytes of its storage."""
        size = SIZES[self.dtype]
        last = self.offset + sum((length - 1) * step for length, step in zip(self.shape, self.stride, strict=True))
        return bool(places) and self.offset * size < places.stop and (last + 1) * size > places.start

    def _overlaps(self) -> bool:
        """Return whether it has more elements than its storage, though each is of another place."""
        count = math.prod(length for length, step in zip(self.shape, self.stride, strict=True) if step)
        return count * SIZES[self.dtype] > self.storage.data.nbytes

    def _elements(self) -> npt.NDArray[Any]:
        """Return a view of the elements' bits, each once where a dimension repeats it."""
        import numpy as np

        size = SIZES[self.dtype]
        word = min(size, 8)
        shape = [length if step or not length else 1 for length, step in zip(self.shape, self.stride, strict=True)]
        steps = [step * size for step in self.stride]
        if size > word:
            shape, steps = [*shape, size // word], [*steps, word]
        return np.ndarray(tuple(shape), f"<u{word}", self.storage.data, self.offset * size, tuple(steps))


def _blocks(one: npt.NDArray[Any], two: npt.NDArray[Any]) -> Iterator[tuple[npt.NDArray[Any], npt.NDArray[Any]]]:
    """Yield both in parts of at most so many elements that no large copy is made of either."""
    if one.size <= _BLOCK:
        if one.size:
            yield one, two
    elif one.ndim == 1:
        for begin in range(0, len(one), _BLOCK):
            yield one[begin : begin + _BLOCK], two[begin : begin + _BLOCK]
    else:
        rows = max(1, _BLOCK * len(one) // one.size)
        for begin in range(0, len(one), rows):
            parts = one[begin : begin + rows], two[begin : begin + rows]
            yield from _blocks(*parts) if rows > 1 else _blocks(parts[0][0], parts[1][0])
