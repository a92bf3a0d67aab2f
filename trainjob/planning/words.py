"""Numbers as text for people."""

from __future__ import annotations


def number(value: int) -> str:
    """Return `value` with thousands separators: 50,000."""
    return f"{value:,}"


def quantity(value: int, word: str, plural: str = "") -> str:
    """Return `value` and its word, in the plural unless `value` is 1: 1 host, 1,437 samples."""
    return f"{number(value)} {word if value == 1 else plural or word + 's'}"


def span(first: int, last: int) -> str:
    """Return a range of numbers, both ends included: 0-7, or 3 if both ends are 3."""
    return str(first) if first == last else f"{first}-{last}"


def size(count: int) -> str:
    """Return `count` bytes with a decimal unit: 1.5 GB."""
    amount = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} TB"


def seconds(value: float) -> str:
    """Return a duration as people read it: 0.12 s, 34.5 s, 12 min 5 s, 3 h 20 min."""
    if value < 60:
        return f"{value:.2f} s" if value < 10 else f"{value:.1f} s"
    minutes, rest = divmod(int(value), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"
