"""Beside each line of a script, where its values came from."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trainjob.render.sourced import CLOSE, OPEN

_MARK = re.compile(f"{OPEN}([^{CLOSE}]*){CLOSE}")


def beside(explained: str) -> Iterator[tuple[str, str]]:
    """Yield each line of the script as it stands, with the origins of its values, in order, once each."""
    for line in explained.split("\n"):
        origins = dict.fromkeys(_MARK.findall(line))
        yield _MARK.sub("", line), ", ".join(origins)
