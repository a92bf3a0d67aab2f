"""Values that remember where they came from, for `--explain`."""

from __future__ import annotations

from typing import Self

from trainjob.render import quoting
from trainjob.render.quoting import Shell

# Stands on both sides of an origin in an explained rendering: the one character that no script can hold.
MARK = "\0"


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
        """Return the text quoted: Jinja asks this when a template adds it to what a macro or a block has printed."""
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


def origin_of(value: object) -> str | None:
    """Return where `value` came from; None when it does not say."""
    return value.origin if isinstance(value, Sourced | SourcedShell) else None


def marked(printed: str, origin: str) -> str:
    """Return what was printed, with its origin between marks."""
    return f"{printed}{MARK}{quoting.one_line(origin)}{MARK}"
