"""Numbers as people read them."""

from __future__ import annotations


def number(value: int) -> str:
    """Return `value` with its thousands parted: 50,000."""
    return f"{value:,}"


def quantity(value: int, word: str) -> str:
    """Return `value` and its word, in the plural where there is not exactly one: 1 host, 1,437 samples."""
    return f"{number(value)} {word if value == 1 else word + 's'}"


def flag(setting: str) -> str:
    """Return the command line's name of a job setting: --micro-batch."""
    return "--" + setting.replace("_", "-")


def span(first: int, last: int) -> str:
    """Return a range of numbers, both ends included: 0-7, or 3 where they are one."""
    return str(first) if first == last else f"{first}-{last}"
