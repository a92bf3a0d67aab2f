"""The exceptions of poptorch."""

from __future__ import annotations

import sys
from typing import Any


class Error(RuntimeError):
    """Something that the compiler or the device refuses: `message`, what raised it (`type`), and where (`location`)."""

    def __init__(self, message: str, type: str = "popart_exception") -> None:
        super().__init__(message)
        self.message, self.type = message, type
        frame: Any = sys._getframe(1)
        self.location = "%s in %s:%d" % (frame.f_code.co_name, frame.f_code.co_filename, frame.f_lineno)

    def __reduce__(self) -> Any:
        return self.__class__, (self.message, self.type)


class RecoverableError(Error):
    """An error after which the device can be reset, by what `recovery_action` says."""

    recovery_action = "IPU_RESET"


class UnrecoverableError(Error):
    """An error after which the device is lost."""
