"""The output of instances in whole lines: mpirun tags each write, so that `print(a, b)` may arrive in pieces."""

from __future__ import annotations

import re
from typing import Callable, Dict

_TAG = re.compile(rb"(\[\d+,\d+\]<(?:stdout|stderr|stddiag)>:)")


class TaggedLines:
    """Puts the pieces of a line together, by the tag that names its instance and stream."""

    def __init__(self, write: Callable[[bytes], object]) -> None:
        self._write = write
        self._open: Dict[bytes, bytes] = {}  # what has no line end yet, by tag
        self._rest = b""

    def add(self, block: bytes) -> None:
        """Take what mpirun printed; lines that are whole are written."""
        *whole, self._rest = (self._rest + block).split(b"\n")
        for line in whole:
            last = self._take(line)
            if last:
                self._write(last + self._open.pop(last) + b"\n")

    def add_of(self, tag: bytes, block: bytes) -> None:
        """Take what one instance printed, without tags."""
        *whole, self._open[tag] = (self._open.get(tag, b"") + block).split(b"\n")
        for line in whole:
            self._write(tag + line + b"\n")

    def finish(self) -> None:
        """Write what never got a line end, each instance's on a line of its own."""
        if self._rest:
            self._take(self._rest)
            self._rest = b""
        for tag, text in self._open.items():
            if text:
                self._write(tag + text + b"\n")
        self._open.clear()

    def _take(self, line: bytes) -> bytes:
        """Keep the pieces of a line, and return the last piece's tag; a line without tags is mpirun's own."""
        own, *pieces = _TAG.split(line)
        if own or not pieces:
            self._write(own + b"\n")
        for tag, text in zip(pieces[::2], pieces[1::2]):
            self._open[tag] = self._open.get(tag, b"") + text
        return pieces[-2] if pieces else b""
