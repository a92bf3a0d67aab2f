"""The text of a new cluster file: a file of the catalog with its comments and the places that a site fills in."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from trainjob.cluster.errors import ClusterError
from trainjob.contract.errors import nearest
from trainjob.kinds.lookup import catalog
from trainjob.kinds.table import KINDS

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}", re.ASCII)
_MARKED = re.compile(r"^ *# (\S+):.*# fill in", re.MULTILINE)


def draft(name: str, source: str) -> str:
    """Return the text of a cluster file called `name`, drafted from the catalog's `source`. Raises ClusterError."""
    refuse_name(name)
    return f"# {name}: drafted from the catalog's {source}.\n{_text_of(source)}"


def refuse_name(name: str) -> None:
    """Raise ClusterError unless `name` is a valid name for a cluster file."""
    if not _NAME.fullmatch(name) or name.endswith(".yaml"):
        raise ClusterError(
            f'"{name}" can\'t name a cluster file', "use letters, digits, dots, dashes and underscores, without .yaml"
        )


def source_of_kind(kind: str) -> str:
    """Return the name of the catalog's file for `kind`. Raises ClusterError, which lists the kinds."""
    if kind not in KINDS:
        raise ClusterError(f'read --kind "{kind}", expected one of {", ".join(KINDS)}', _meant(kind, KINDS))
    return KINDS[kind].DRAFT


def places_to_fill_in(text: str) -> tuple[tuple[int, str], ...]:
    """Return the line (from 1) and the key of every place in `text` that the site must fill in."""
    return tuple((text.count("\n", 0, match.start()) + 1, match[1]) for match in _MARKED.finditer(text))


def write_draft(path: Path, text: str) -> None:
    """Write `text` to the new file `path`, and create its folder. Raises ClusterError if the file exists."""
    if path.exists():
        raise ClusterError(f"{path} exists already, and is not overwritten", "choose another name, or remove it")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as stream:
            stream.write(text)
    except OSError as error:
        raise ClusterError(f"{path} can't be written: {error.strerror}", "choose a folder that you may write") from None


def _text_of(source: str) -> str:
    entries = {entry.name: entry for entry in catalog()}
    if source not in entries:
        names = list(entries)
        raise ClusterError(f'read --from "{source}", expected one of {", ".join(names)}', _meant(source, names))
    return entries[source].path.read_text(encoding="utf-8")


def _meant(word: str, names: Iterable[str]) -> str:
    close = nearest(word, names)
    return f"is {close} meant?" if close else ""
