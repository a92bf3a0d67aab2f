"""mpirun's tags in a job script's log: [1,3]<stdout>:text. What each rank printed, and poprun's own lines apart."""

from __future__ import annotations

import re
from collections.abc import Iterator

_TAG = re.compile(rb"\[\d+,(\d+)\]<(?:stdout|stderr|stddiag)>:")
_OWN = re.compile(rb"\d\d:\d\d:\d\d\.\d+ \d+ POPRUN \[[A-Z]\] ")


def shown(line: bytes) -> Iterator[bytes]:
    """Yield a line of the log as people read it, without its line end: the rank in front where a tag names one.

    A tag may stand in mid-line: of the same rank, its text goes on (a progress bar); of another, a new line begins.
    """
    pieces = _TAG.split(line)
    if len(pieces) == 1:
        yield b"[poprun] " + line if _OWN.match(line) else line
        return
    if pieces[0]:
        yield from shown(pieces[0])
    for rank, text in _joined(list(zip(pieces[1::2], pieces[2::2], strict=True))):
        yield b"[%s] %s" % (rank, text)


def _joined(pieces: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    found: list[tuple[bytes, bytes]] = []
    for rank, text in pieces:
        if found and found[-1][0] == rank:
            found[-1] = (rank, found[-1][1] + text)
        else:
            found.append((rank, text))
    return found
