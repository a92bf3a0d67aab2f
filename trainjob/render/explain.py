"""Beside each line of a script, where its values came from."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trainjob.render.sourced import MARK

_ORIGIN = re.compile(f"{MARK}([^{MARK}]*){MARK}")


def beside(explained: str) -> Iterator[tuple[str, str]]:
    """Yield each line of the script as it stands, with the origins of its values, in order, once each."""
    for line in explained.split("\n"):
        origins = dict.fromkeys(_ORIGIN.findall(line))
        yield _ORIGIN.sub("", line), ", ".join(origins)
