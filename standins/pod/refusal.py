"""The refusal of a stand-in."""

from __future__ import annotations


class Refused(Exception):  # noqa: N818 - an answer of the program, not a fault of its own
    """A request can't be met: one line, with the rule and the values."""
