"""Reads the clock, and waits. Nothing else in trainjob does: a simulated world can put a clock of its own here."""

from time import monotonic, sleep, time

__all__ = ["monotonic", "sleep", "time"]
