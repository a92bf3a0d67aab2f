"""The output of a rank as it grows: the lines of this attempt, a bounded part of them at a time."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import List, Optional

from trainjob.records.files import DamagedError, open_regular

_MOST_AT_ONCE = 1 << 16
_MOST_HEAD = 1 << 20
_MOST_HELD = 1 << 12
# A bar moves the cursor back to the beginning of its line, or up by some lines.
_ENDS = re.compile(r"\r\n|[\r\n\b]+|\x1b\[\d*A")


class Output:
    """The lines that a log has got since the last call. Of what comes faster than it is read, the newest part."""

    def __init__(self, log: Path, attempt: int) -> None:
        self._log = log
        self._header = ("--- attempt %d " % attempt).encode()
        self._offset: Optional[int] = None  # None before the attempt has begun its part of the log
        self._rest = ""

    def new(self, *, is_last: bool = False) -> List[str]:
        """Return the new lines. One without an end is kept until it has one, or nothing has followed it."""
        content = self._more()
        if not content or is_last:
            # A bar ends its line when it draws the next one, which may take a while.
            lines, self._rest = _ENDS.split(self._rest + content), ""
        else:
            lines = _ENDS.split(self._rest + content)
            self._rest = lines.pop()[-_MOST_HELD:]
        return [line for line in lines if line]

    def _more(self) -> str:
        try:
            with open_regular(self._log) as stream:
                size = os.fstat(stream.fileno()).st_size
                if self._offset is None:
                    stream.seek(max(0, size - _MOST_HEAD))
                    at = stream.read(_MOST_HEAD).rfind(self._header)
                    if at < 0:
                        return ""
                    self._offset = max(0, size - _MOST_HEAD) + at
                if size - self._offset > _MOST_AT_ONCE:
                    self._offset, self._rest = size - _MOST_AT_ONCE, ""
                stream.seek(self._offset)
                content = stream.read(_MOST_AT_ONCE)
        except (OSError, DamagedError):
            return ""
        self._offset += len(content)
        return content.decode("utf-8", "replace")
