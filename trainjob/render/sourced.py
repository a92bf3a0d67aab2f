"""Values that remember where they came from, for `--explain`."""

from __future__ import annotations

from typing import Self

from trainjob.render.quoting import Shell

# Private-use characters, which no quoting touches, stand around an origin in an explained rendering.
OPEN, CLOSE = "\ue000", "\ue001"


class Sourced(str):
    """Text with its origin: "flag --instances", "cluster file hpc.yaml", "default"."""

    __slots__ = ("origin",)
    origin: str

    def __new__(cls, text: object, origin: str) -> Self:
        """Return `text` as a str that carries `origin`."""
        made = super().__new__(cls, text)
        made.origin = origin
        return made


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
    return getattr(value, "origin", None) if isinstance(value, Sourced | SourcedShell) else None
