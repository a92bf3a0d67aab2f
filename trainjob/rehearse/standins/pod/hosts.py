"""Host lists as poprun reads them: a,b or host[0-2,4]."""

from __future__ import annotations

import re
from typing import Iterator, List

from trainjob.rehearse.standins.pod.refusal import Refused

_ENTRY = re.compile(r"([^\[\],]+)(?:\[([0-9,-]+)\])?(?:,|$)")


def expand(text: str) -> List[str]:
    """Return every host of a list, in order. Raises Refused."""
    names: List[str] = []
    at = 0
    while at < len(text):
        match = _ENTRY.match(text, at)
        if match is None:
            raise Refused("option --host: '%s' can't be read from '%s' on" % (text, text[at:]))
        names.extend(_names(match.group(1), match.group(2)))
        at = match.end()
    if len(set(names)) != len(names) or not names:
        raise Refused("option --host: '%s' names no host, or one twice" % text)
    return names


def _names(stem: str, ranges: str) -> Iterator[str]:
    if not ranges:
        yield stem
        return
    for part in ranges.split(","):
        first, _, last = part.partition("-")
        for number in range(int(first), int(last or first) + 1):
            yield stem + str(number).zfill(len(first))
