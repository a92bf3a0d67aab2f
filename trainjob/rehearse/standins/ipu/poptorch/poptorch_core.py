"""The error types of poptorch's C++ half, under the name by which programs catch them."""

from __future__ import annotations

from poptorch.errors import Error, RecoverableError, UnrecoverableError

__all__ = ["Error", "RecoverableError", "UnrecoverableError"]
