"""poprun's own lines: HH:MM:SS.mmm PID POPRUN [LEVEL] message."""

from __future__ import annotations

import datetime
import os
import sys

_shown = {"I": True, "D": False}


def show(debug: bool) -> None:
    """Choose whether details are shown."""
    _shown["D"] = debug


def info(text: str) -> None:
    """Say what happens."""
    _write("I", text)


def detail(text: str) -> None:
    """Say what happens, to those who want to know all of it."""
    if _shown["D"]:
        _write("D", text)


def warning(text: str) -> None:
    """Say what may not be meant."""
    _write("W", text)


def error(text: str) -> None:
    """Say what ends poprun."""
    _write("E", text)


def _write(level: str, text: str) -> None:
    now = datetime.datetime.now().strftime("%H:%M:%S.%f")[:-3]
    sys.stderr.write("%s %d POPRUN [%s] %s\n" % (now, os.getpid(), level, text))
    sys.stderr.flush()
