"""Questions to several machines at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

_Item = TypeVar("_Item")
_Answer = TypeVar("_Answer")


def side_by_side(ask: Callable[[_Item], _Answer], items: Iterable[_Item], at_once: int = 8) -> list[_Answer]:
    """Return what `ask` says of each item. A single one takes no thread, which a limit may refuse."""
    every = list(items)
    if len(every) < 2:
        return list(map(ask, every))
    from concurrent.futures import ThreadPoolExecutor  # takes a while to load

    with ThreadPoolExecutor(max_workers=at_once) as pool:
        return list(pool.map(ask, every))
