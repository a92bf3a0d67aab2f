"""Values that carry their origin, and the notes that `--explain` shows beside each line of a script."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from typing import NamedTuple, Self

from trainjob.contract import quoting
from trainjob.contract.quoting import Shell

# Encloses a note in an explained rendering: the only character that no script can contain.
_MARK = "\0"
_ORIGIN, _REASON = "=", "?"
EVERY_JOB = "every job of this kind"
# Before what continues a line of a script that is wider than the page.
CONTINUED = "↪ "
_COLUMNS = 120
_NOTES_AT = 52
_NOTE = re.compile(f"{_MARK}([{_ORIGIN}{_REASON}])([^{_MARK}]*){_MARK}")


class Sourced(str):
    """Text with its origin: "flag --instances", "cluster file hpc.yaml", "default"."""

    __slots__ = ("origin",)
    origin: str

    def __new__(cls, text: object, origin: str) -> Self:
        """Return `text` as a str that carries `origin`."""
        made = super().__new__(cls, text)
        made.origin = origin
        return made

    def __html__(self) -> str:
        """Return the quoted text. Jinja calls this when a template adds it to the output of a macro or a block."""
        return quoting.word(self)


class SourcedShell(Shell):
    """Finished shell with its origin."""

    __slots__ = ("origin",)
    origin: str

    def __new__(cls, shell: Shell, origin: str) -> Self:
        """Return `shell` as finished shell that carries `origin`."""
        made = super().__new__(cls, shell)
        made.origin = origin
        return made


def naming_its_option(flag: str, value: Sourced | SourcedShell) -> Sourced | SourcedShell:
    """Return an option's value whose origin names the option, for lines that hold several."""
    origin = f"{flag}: {value.origin}"
    return Sourced(value, origin) if isinstance(value, Sourced) else SourcedShell(value, origin)


def origin_of(value: object) -> str | None:
    """Return the origin of `value`; None if it carries none."""
    return value.origin if isinstance(value, Sourced | SourcedShell) else None


def marked(printed: str, origin: str) -> str:
    """Return the printed text with a note of its origin at the end of each line."""
    note = _note(_ORIGIN, origin)
    return printed.replace("\n", f"{note}\n") + note


def reason(sentence: str, *origins: object) -> Shell:
    """Return the note that says why a line is there; `origins` are texts, or values that carry their origin."""
    named = [origin_of(origin) or str(origin) for origin in origins]
    return Shell("".join(_note(_ORIGIN, name) for name in named) + _note(_REASON, sentence))


def _note(kind: str, text: str) -> str:
    return f"{_MARK}{kind}{quoting.one_line(text)}{_MARK}"


class Explained(NamedTuple):
    """One line of a script, where its values came from, and why it is there; both are empty for an empty line."""

    line: str
    origin: str
    why: str


def beside(explained: str) -> Iterator[Explained]:
    """Yield each line of an explained rendering as it is in the script, with its origin and its reason."""
    pending: list[tuple[str, list[str]]] = []
    for marked_line in explained.split("\n"):
        notes = _NOTE.findall(marked_line)
        line = _NOTE.sub("", marked_line)
        origins = [text for kind, text in notes if kind == _ORIGIN]
        reasons = [text for kind, text in notes if kind == _REASON]
        pending.append((line, origins))
        # A value may span several lines: the reason on its last line is the reason for all of them.
        if reasons or not origins:
            yield from _explained(pending, " ".join(dict.fromkeys(reasons)))
            pending = []
    yield from _explained(pending, "")


def _explained(lines: list[tuple[str, list[str]]], why: str) -> Iterator[Explained]:
    for line, origins in lines:
        if not line.strip() and not origins:
            yield Explained(line, "", "")
        elif why:
            yield Explained(line, ", ".join(dict.fromkeys(origins)) or EVERY_JOB, why)
        else:
            yield Explained(
                line, ", ".join(dict.fromkeys(origins)) or "a site's template", "A site's template prints it."
            )


def in_columns(explained: str) -> Iterator[str]:
    """Yield the lines of an explained rendering with their notes to the right, in 120 columns.

    A line that reaches into the notes has them below it. What every job has is no origin worth telling.
    """
    for line, origin, why in beside(explained):
        first, *more = _chunks(line, _COLUMNS) or [""]
        shown = [first, *(CONTINUED + part for part in _chunks("".join(more), _COLUMNS - len(CONTINUED)))]
        origins = ", ".join(one for one in origin.split(", ") if one != EVERY_JOB)
        note = f"{origins}: {why}" if origins else why
        notes = [f"# {part}" for part in textwrap.wrap(note, _COLUMNS - _NOTES_AT - 2)] if why else []
        if notes and len(shown[-1]) < _NOTES_AT:
            shown[-1] = f"{shown[-1]:<{_NOTES_AT}}{notes.pop(0)}"
        yield from shown
        yield from (" " * _NOTES_AT + part for part in notes)


def _chunks(line: str, columns: int) -> list[str]:
    """Return the line in pieces of so many columns, at spaces where it has some."""
    return textwrap.wrap(
        line, columns, expand_tabs=False, replace_whitespace=False, drop_whitespace=False, break_on_hyphens=False
    )
