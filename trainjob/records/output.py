"""The output of a rank as it grows: the lines of this attempt, a bounded part of them at a time."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import List, NamedTuple, Optional

from trainjob.records.files import DamagedError, open_regular

_MOST_AT_ONCE = 1 << 16
_MOST_HEAD = 1 << 20
_MOST_HELD = 1 << 12
# A bar moves the cursor back to the beginning of its line, or up by some lines.
_ENDS = re.compile(rb"\r\n|[\r\n\b]+|\x1b\[\d*A")


class Line(NamedTuple):
    """A printed line, and the byte of the log at which it begins."""

    text: str
    at: int


class Output:
    """The lines that a log has got since the last call. Of what comes faster than it is read, the newest part."""

    def __init__(self, log: Path, attempt: int) -> None:
        self._log = log
        self._header = ("--- attempt %d " % attempt).encode()
        self._offset: Optional[int] = None  # None before the attempt has begun its part of the log
        self._rest = b""

    def new(self, *, is_last: bool = False) -> List[Line]:
        """Return the new lines. One without an end is kept until it has one, or nothing has followed it."""
        content = self._more()
        text, at = self._rest + content, (self._offset or 0) - len(content) - len(self._rest)
        found: List[Line] = []
        begin = 0
        for end in _ENDS.finditer(text):
            found.append(Line(text[begin : end.start()].decode("utf-8", "replace"), at + begin))
            begin = end.end()
        self._rest = text[begin:][-_MOST_HELD:]
        if self._rest and (not content or is_last):
            # A bar ends its line when it draws the next one, which may take a while.
            found.append(Line(self._rest.decode("utf-8", "replace"), at + begin))
            self._rest = b""
        return [line for line in found if line.text]

    def _more(self) -> bytes:
        try:
            with open_regular(self._log) as stream:
                size = os.fstat(stream.fileno()).st_size
                if self._offset is None:
                    stream.seek(max(0, size - _MOST_HEAD))
                    at = stream.read(_MOST_HEAD).rfind(self._header)
                    if at < 0:
                        return b""
                    self._offset = max(0, size - _MOST_HEAD) + at
                if size - self._offset > _MOST_AT_ONCE:
                    self._offset, self._rest = size - _MOST_AT_ONCE, b""
                stream.seek(self._offset)
                content = stream.read(_MOST_AT_ONCE)
        except (OSError, DamagedError):
            return b""
        self._offset += len(content)
        return content
