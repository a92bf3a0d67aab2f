"""What `trainjob … --json` prints, without the version of its form; the rows, where it prints a list."""

from __future__ import annotations

import json
from typing import Any


def reported(text: str) -> Any:
    """Return what a command reports."""
    found = json.loads(text)
    assert found.pop("json_version") == 1
    return found["rows"] if list(found) == ["rows"] else found
