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


_TYPES = {
    TestErrorType.PoplarUnrecoverable: "poplar_unrecoverable_runtime_error",
    TestErrorType.PoplarRecoverableFullReset: "poplar_recoverable_runtime_error",
    TestErrorType.PoplarLinkError: "poplar_link_error",
}
_KINDS = {
    TestErrorType.PoplarUnrecoverable: UnrecoverableError,
    TestErrorType.PoplarRecoverableFullReset: RecoverableError,
}


def _throwTestError(error: TestErrorType) -> None:
    """Raise the error that the user guide's example of error handling asks for."""
    error = TestErrorType(error)
    text = "test error: %s%s" % (error.name, ": -lfoo not found" * (error == TestErrorType.PoplarLinkError))
    raised: Any = _KINDS.get(error, Error)(text, _TYPES.get(error, "popart_exception"))
    raised.location = "  [0] throwTestError::bottomLevel\n  [1] throwTestError::topLevel\n"
    raised.args = ("%s\n%s" % (text, raised.location),)
    if isinstance(raised, RecoverableError):
        raised.recovery_action = "FULL_RESET"
    raise raised


def _validateOptions(options: Dict[str, Any]) -> None:
    """Log what `Options.toDict` returned. Raises Error for options that PopART does not have."""
    option_lines.validate(options)
