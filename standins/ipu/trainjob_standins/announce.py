"""The lines of a stand-in, in the form of the log lines of those it stands in for."""

from __future__ import annotations

import datetime
import logging
import os
import sys
from typing import List, Set

from trainjob_standins.place import here

_LEVELS = ("TRACE", "DEBUG", "INFO", "WARN", "ERR", "OFF")
_logged: Set[str] = set()
_chosen: List[str] = []


def say_what_this_is() -> None:
    """Say once, on instance 0, what runs here."""
    if here().instance == 0:
        once(
            "trainjob: poptorch, popdist and horovod may be stand-ins on this CPU. They reproduce what the real "
            "ones do, not how fast they do it."
        )


def once(line: str) -> None:
    """Write `line` to standard error, the first time it is given."""
    if line not in _logged:
        _logged.add(line)
        sys.stderr.write(line + "\n")
        sys.stderr.flush()


def set_level(name: str) -> None:
    """Log from level `name` on, whatever POPTORCH_LOG_LEVEL says."""
    _chosen[:] = [name]


def warn(text: str) -> None:
    """Log a warning, each text once, unless the level leaves warnings out."""
    if text not in _logged and is_logged("WARN"):
        _logged.add(text)
        log("WARN", text)


def is_logged(level: str) -> bool:
    """Return whether lines of this level are written."""
    least = _chosen[0] if _chosen else os.environ.get("POPTORCH_LOG_LEVEL", "WARN").upper()
    return least not in _LEVELS or _LEVELS.index(least) <= _LEVELS.index(level)


def log(level: str, text: str) -> None:
    """Log a line, for Python's logging to see as well."""
    if is_logged(level):
        _logger.log(_NUMBERS[level], text)


class _Lines(logging.Handler):
    """Writes to what is standard error now."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one line."""
        now = datetime.datetime.now().strftime("%H:%M:%S.%f")[:-3]
        level = record.levelname.lower()
        sys.stderr.write("[%s] [poptorch::python] [%s] %s\n" % (now, level, record.getMessage()))
        sys.stderr.flush()


_NUMBERS = {"TRACE": 5, "DEBUG": logging.DEBUG, "INFO": logging.INFO, "WARN": logging.WARNING, "ERR": logging.ERROR}
logging.addLevelName(_NUMBERS["TRACE"], "TRACE")
_logger = logging.getLogger("poptorch::python")
_logger.setLevel(1)
_logger.handlers[:] = [_Lines()]
