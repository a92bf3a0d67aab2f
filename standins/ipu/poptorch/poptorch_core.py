"""poptorch's C++ half, as far as programs name it: its error types, and errors on request to test a program by."""

from __future__ import annotations

from enum import IntEnum
from typing import Any, Dict

from poptorch import option_lines
from poptorch.errors import Error, RecoverableError, UnrecoverableError

__all__ = ["Error", "RecoverableError", "TestErrorType", "UnrecoverableError"]


class TestErrorType(IntEnum):
    """The kinds of error that _throwTestError raises."""

    Poptorch = 0
    Popart = 1
    PopartInternal = 2
    Poplibs = 3
    PoplarUnrecoverable = 4
    PoplarUnknown = 5
    PoplarRecoverableFullReset = 6
    PoplarLinkError = 7


def _throwTestError(error: TestErrorType) -> None:
    """Raise the error that the user guide's example of error handling asks for."""
    text = "test error: %s" % TestErrorType(error).name
    if error == TestErrorType.PoplarUnrecoverable:
        raise UnrecoverableError(text, "poplar_unrecoverable_runtime_error")
    if error == TestErrorType.PoplarRecoverableFullReset:
        recoverable = RecoverableError(text, "poplar_recoverable_runtime_error")
        recoverable.recovery_action = "FULL_RESET"
        raise recoverable
    raise Error(text)


def _validateOptions(options: Dict[str, Any]) -> None:
    """Log what `Options.toDict` returned. Raises Error for options that PopART does not have."""
    option_lines.validate(options)
