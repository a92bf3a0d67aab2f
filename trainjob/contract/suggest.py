"""Did you mean …? The one place that looks for the name nearest to a misspelt one."""

from __future__ import annotations

import difflib
import itertools
from typing import Iterable, Optional, Tuple

_LIKE_ENOUGH = 0.6


def nearest(word: str, choices: Iterable[str]) -> Optional[str]:
    """Return the choice most like `word`, ignoring case and - against _; None if none is like it."""
    likeness, name = max(((_likeness(word, choice), choice) for choice in choices), default=((0.0, 0), ""))
    return name if likeness[0] >= _LIKE_ENOUGH else None


def did_you_mean(word: str, choices: Iterable[str]) -> str:
    """Return "did you mean NAME? " with the nearest choice; nothing if none is like `word`."""
    close = nearest(word, choices)
    return "did you mean %s? " % close if close else ""


def _likeness(word: str, name: str) -> Tuple[float, int]:
    """Return the share of letters in common and, to settle a tie, how many of them begin both."""
    one, other = (text.lower().replace("-", "_") for text in (word, name))
    beginning = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(one, other))
    return difflib.SequenceMatcher(None, one, other).ratio(), len(list(beginning))
