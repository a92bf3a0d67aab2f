"""Prints: aligned rows that can be copied, JSON, and text from any source with its control characters visible."""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

import typer

from trainjob.contract import clock, states
from trainjob.contract.errors import UserError
from trainjob.planning.words import seconds as seconds
from trainjob.planning.words import size as size

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from trainjob.observe.status import Snapshot

# What a terminal acts on instead of showing it: C0 but line feed and tab, DEL, C1, the line separators and direction
# marks of Unicode; the halves of characters, which no stream can encode; and the marks of our own colours.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufdd0]")
_RUN = re.compile(f"{_CONTROL.pattern}+")
# A colour in text that is still to be printed is a mark that only this process can make. What writes to the terminal
# puts the sequence in its place, so nothing that a file holds becomes a colour.
_MARK = f"\ufdd0{os.urandom(8).hex()}:"
_MARKS = re.compile(f"({_MARK}[0-9;]+m)")
_PAINTS = {"red": "1;31", "green": "32", "yellow": "1;33", "cyan": "36", "bold": "1"}
STATE_PAINTS = {
    states.COMPLETED: "green",
    states.RUNNING: "cyan",
    **dict.fromkeys((states.FAILED, states.LOST), "red"),
    **dict.fromkeys((states.TIMEOUT, states.STOPPED, states.CANCELLED), "yellow"),
}
JSON_VERSION = 1


def visible(text: str) -> str:
    r"""Return `text` with each control character written out, as in \x1b; line feeds and tabs stay."""
    return _RUN.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def is_coloured(stream: TextIO) -> bool:
    """Return whether `stream` takes colours: https://no-color.org, else FORCE_COLOR, else whether it is a terminal."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return os.environ.get("TERM") != "dumb" and stream.isatty()


def painted(text: str, paint: str, stream: TextIO | None = None) -> str:
    """Return `text` in a colour (red, green, yellow, cyan) or bold, where standard output or `stream` takes colours."""
    stream = sys.stdout if stream is None else stream
    # Only our own streams write the marks as a terminal's sequences.
    marked = f"{_MARK}{_PAINTS[paint]}m{visible(text)}{_MARK}0m"
    return marked if isinstance(stream, Visible) and is_coloured(stream.raw) else text


def state(word: str, width: int = 0) -> str:
    """Return the state of a run in its colour, filled up to `width`."""
    return painted(f"{word:<{width}}", paint) if (paint := STATE_PAINTS.get(word)) else f"{word:<{width}}"


def json_text(value: object, indent: int | None = None) -> str:
    """Return `value` as JSON in which control characters are JSON's own escapes."""
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    return _CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def as_json(value: Mapping[str, object] | Sequence[Mapping[str, object]]) -> None:
    """Print what a command reports as indented JSON: an object, in which a list stands under `rows`."""
    document(versioned(value if isinstance(value, Mapping) else {"rows": value}))


def versioned(values: Mapping[str, object]) -> dict[str, Any]:
    """Return `values` after the version of their form, which grows when a name changes its meaning or goes."""
    return {"json_version": JSON_VERSION, **values}


def document(value: object) -> None:
    """Print a document, which has a form of its own, as indented JSON."""
    typer.echo(json_text(value, indent=1))


def rows(pairs: Iterable[tuple[str, str]], indent: int = 2) -> None:
    """Print names and values in two aligned columns; never wrapped, so that a path can be copied."""
    listed = list(pairs)
    width = max((len(name) for name, _ in listed), default=0)
    for name, value in listed:
        typer.echo(f"{' ' * indent}{name:<{width}}  {_cell(value)}")


def table(head: Sequence[str], body: Iterable[Sequence[str]]) -> None:
    """Print a table with one line of headings."""
    lines = [list(head), *([_cell(cell) for cell in line] for line in body)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    columns = list(zip(head, widths, strict=True))
    listed = (
        "  ".join(
            state(cell, width) if title == "STATE" else cell.ljust(width)
            for cell, (title, width) in zip(line, columns, strict=True)
        ).rstrip()
        for line in lines
    )
    typer.echo("\n".join(listed))  # at once, because each write on its own takes longer than its line


def _cell(text: str) -> str:
    # One line is one row, whatever a file says, and columns are aligned by what is seen.
    return visible(str(text)).replace("\n", "\\n").replace("\t", "\\t")


Row = TypeVar("Row", bound="DataclassInstance")


def figures(
    measured: Sequence[Row], columns: Callable[[Row], Mapping[str, str]], output: Path | None, *, in_json: bool
) -> None:
    """Print what was measured as a table, or as JSON; with `output`, also write it to that file.

    `columns` returns the cells of a row by their headings, which are the same for every row.
    """
    values = [asdict(row) for row in measured]
    if output is not None:
        from trainjob.records.files import write_json

        write_json(output, values)
    if in_json:
        as_json(values)
    else:
        lines = [columns(row) for row in measured]
        table(list(lines[0]) if lines else [], (list(line.values()) for line in lines))


def warning(line: str) -> None:
    """Print a warning on the error stream."""
    typer.echo(f"{painted('warning', 'yellow', sys.stderr)}: {line}", err=True)


def age(at: str | None) -> str:
    """Return how long ago `at` was, an ISO time, in its largest unit, as in "3 min"; empty where it is no time."""
    try:
        passed_s = max(0.0, clock.time() - datetime.fromisoformat(at or "").timestamp())
    except ValueError:
        return ""
    units = ((86400, "d"), (3600, "h"), (60, "min"))
    return next(
        (f"{passed_s // size_s:.0f} {unit}" for size_s, unit in units if passed_s >= size_s), f"{passed_s:.0f} s"
    )


def time_left(now: Snapshot) -> str:
    """Return how long a run still takes, as in "2 min 5 s left"; empty if that is unknown, or it is at its end."""
    left_s = None if now.outlook is None else now.outlook.left_s
    if left_s is None or left_s < 1 or now.update is None or now.update >= (now.total_updates or 0):
        return ""
    return f"{seconds(left_s)} left"


_is_quiet = threading.Event()


def be_quiet() -> None:
    """Print no progress from now on."""
    _is_quiet.set()


def progress(line: str) -> None:
    """Print progress where it does not mix with the output of a command, unless it is not wanted."""
    if not _is_quiet.is_set():
        typer.echo(line, err=True)


def write_lines(lines: Iterable[bytes]) -> None:
    """Print lines of a log at once; a carriage return, with which a progress bar draws over itself, ends a line."""
    for line in lines:
        text = line.decode(errors="backslashreplace").replace("\r\n", "\n").replace("\r", "\n")
        sys.stdout.write(visible(text))
        sys.stdout.flush()


class OutputLostError(UserError):
    """Standard output can't be written."""

    code = "output"


class Visible:
    """Standard output or error, showing control characters. Its `buffer` is the raw one: a script's bytes, a log."""

    # A stream that can't encode a character escapes it, so none must be left out.
    encoding = "utf-8"

    def __init__(self, stream: TextIO) -> None:
        self.raw = stream

    def write(self, text: str) -> int:
        """Write `text`, with its control characters visible. Raises OutputLostError."""
        parts = _MARKS.split(text)  # every second one is a mark
        parts[::2] = map(visible, parts[::2])
        parts[1::2] = (part.replace(_MARK, "\x1b[") for part in parts[1::2])
        shown = "".join(parts)
        self._on_its_way(lambda: self.raw.write(shown))
        return len(text)

    def flush(self) -> None:
        """Pass on what was written. Raises OutputLostError."""
        self._on_its_way(self.raw.flush)

    def _on_its_way(self, pass_on: Callable[[], object]) -> None:
        try:
            pass_on()
        except BrokenPipeError:
            raise
        except OSError as error:
            if self.raw is not sys.__stderr__:  # whose failure can't be reported
                cure = "print elsewhere, or make room there"
                raise OutputLostError(f"standard output can't be written: {error.strerror}", cure) from None

    def __getattr__(self, name: str) -> Any:
        """Return what the stream itself has."""
        return getattr(self.raw, name)


@contextmanager
def protected() -> Iterator[None]:
    """Make control characters visible in everything that is printed inside.

    Where the caller has closed the output (`>&-`), its text goes where errors go, so that a run that starts is named.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # else the next file that is opened would be taken for the output
    nowhere = open(os.devnull, "w") if sys.stderr is None else sys.stderr  # noqa: SIM115 - until the process ends
    streams = nowhere if sys.stdout is None else sys.stdout, nowhere
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
        with contextlib.suppress(OSError):  # the reader of the output has left
            while not over.wait(period_s):
                tell()

    thread = threading.Thread(target=run, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
