"""The lines of a stand-in, in the form of the log lines of those it stands in for."""

from __future__ import annotations

import datetime
import os
import sys
from typing import List, Set

from trainjob_standins.place import here

_LEVELS = ("TRACE", "DEBUG", "INFO", "WARN", "ERR", "OFF")
_said: Set[str] = set()
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
    if line not in _said:
        _said.add(line)
        sys.stderr.write(line + "\n")
        sys.stderr.flush()


def set_level(name: str) -> None:
    """Log from level `name` on, whatever POPTORCH_LOG_LEVEL says."""
    _chosen[:] = [name]


def warn(text: str) -> None:
    """Log a warning, each text once, unless the level leaves warnings out."""
    level = _chosen[0] if _chosen else os.environ.get("POPTORCH_LOG_LEVEL", "WARN").upper()
    if text in _said or (level in _LEVELS and _LEVELS.index(level) > _LEVELS.index("WARN")):
        return
    _said.add(text)
    now = datetime.datetime.now().strftime("%H:%M:%S.%f")[:-3]
    sys.stderr.write("[%s] [poptorch::python] [warning] %s\n" % (now, text))
    sys.stderr.flush()
