"""Numbers as people read them."""

from __future__ import annotations


def number(value: int) -> str:
    """Return `value` with its thousands parted: 50,000."""
    return f"{value:,}"


def quantity(value: int, word: str, plural: str = "") -> str:
    """Return `value` and its word, in the plural where there is not exactly one: 1 host, 1,437 samples."""
    return f"{number(value)} {word if value == 1 else plural or word + 's'}"


def span(first: int, last: int) -> str:
    """Return a range of numbers, both ends included: 0-7, or 3 where they are one."""
    return str(first) if first == last else f"{first}-{last}"


def size(count: int) -> str:
    """Return a number of bytes as people read it."""
    amount = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} TB"
