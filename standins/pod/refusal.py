"""What a stand-in refuses."""

from __future__ import annotations


class Refused(Exception):  # noqa: N818 - an answer of the program, not a fault of its own
    """What was asked can't be had: one line, with the rule and the values."""
