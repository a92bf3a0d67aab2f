"""What reaches the terminal: text in which control characters are visible, whatever file or host it came from."""

from __future__ import annotations

import contextlib
import json
import re
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO

# What a terminal acts on instead of showing it: C0 but line feed and tab, DEL, C1, the line separators and direction
# marks of Unicode; and the halves of characters, which no stream can encode.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_RUN = re.compile(f"{_CONTROL.pattern}+")


def visible(text: str) -> str:
    r"""Return `text` with each control character written out, as in \x1b; line feeds and tabs stay."""
    return _RUN.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def as_json(value: Any, indent: int | None = None) -> str:
    """Return `value` as JSON in which control characters are JSON's own escapes."""
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    return _CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def write_lines(lines: Iterable[bytes]) -> None:
    """Print lines of a log at once; a carriage return, with which a progress bar draws over itself, ends a line."""
    for line in lines:
        text = line.decode(errors="backslashreplace").replace("\r\n", "\n").replace("\r", "\n")
        sys.stdout.write(visible(text))
        sys.stdout.flush()


class Visible:
    """A text stream that shows control characters. Its `buffer` is the raw one: a script's bytes, one rank's log."""

    # A stream that can't encode a character escapes it, so none must be left out.
    encoding = "utf-8"

    def __init__(self, stream: TextIO) -> None:
        self.raw = stream

    def write(self, text: str) -> int:
        """Write `text`, with its control characters visible."""
        self.raw.write(visible(text))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        """Return what the stream itself has."""
        return getattr(self.raw, name)


@contextmanager
def protected() -> Iterator[None]:
    """Make control characters visible in everything that is printed inside."""
    streams = sys.stdout, sys.stderr
    for stream in streams:
        with contextlib.suppress(AttributeError):  # replaced by a test or a program that imports us
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    sys.stdout, sys.stderr = (Visible(stream) for stream in streams)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = streams


def raw(stream: TextIO) -> TextIO:
    """Return the stream below, for the bars and cursor movements that we draw ourselves."""
    return stream.raw if isinstance(stream, Visible) else stream


@contextmanager
def every(period_s: float, tell: Callable[[], None]) -> Iterator[None]:
    """Call `tell` every `period_s` while the work inside lasts: a silent command looks dead."""
    over = threading.Event()

    def run() -> None:
        with contextlib.suppress(OSError):  # whoever read the output has left
            while not over.wait(period_s):
                tell()

    thread = threading.Thread(target=run, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
