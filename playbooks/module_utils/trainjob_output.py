"""What a command said, read for those who wait for it. Python 3.8, on the hosts."""

from __future__ import annotations

import json

_LINES = 12


def tail(text):
    """Return the last lines of what a command said."""
    return "\n".join(text.strip().splitlines()[-_LINES:]) or "it said nothing"


def value(text):
    """Return the last line as the JSON that it is; None where it is none."""
    last = text.strip().splitlines()[-1:] or [""]
    try:
        return json.loads(last[0])
    except ValueError:
        return None
