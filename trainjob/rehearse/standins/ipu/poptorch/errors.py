"""What poptorch raises."""

from __future__ import annotations


class Error(RuntimeError):
    """Something that the compiler or the device refuses."""


class RecoverableError(Error):
    """An error after which the device can be reset."""


class UnrecoverableError(Error):
    """An error after which the device is lost."""
