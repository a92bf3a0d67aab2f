"""The text of a new cluster file: one of the catalog's, comments kept, with the places that a site fills in."""

from __future__ import annotations

import re
from pathlib import Path

from trainjob.cluster.errors import ClusterError
from trainjob.cluster.lookup import catalog
from trainjob.contract.suggest import nearest

# What `cluster init --kind` begins with.
SOURCES = {"ipu-pod": "pod64", "slurm": "slurm-gpu", "hosts": "hosts-gpu", "local": "local"}

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}", re.ASCII)
_MARKED = re.compile(r"^ *# (\S+):.*# fill in", re.MULTILINE)


def draft(name: str, source: str) -> str:
    """Return the text of a cluster file called `name` after the catalog's `source`. Raises ClusterError."""
    refuse_name(name)
    return f"# {name}: drafted from the catalog's {source}.\n{_text_of(source)}"


def refuse_name(name: str) -> None:
    """Raise ClusterError unless `name` can name a cluster file."""
    if not _NAME.fullmatch(name) or name.endswith(".yaml"):
        raise ClusterError(
            f'"{name}" can\'t name a cluster file', "use letters, digits, dots, dashes and underscores, without .yaml"
        )


def source_of_kind(kind: str) -> str:
    """Return the catalog's file that stands for `kind`. Raises ClusterError, naming the kinds."""
    if kind not in SOURCES:
        raise ClusterError(f'read --kind "{kind}", expected one of {", ".join(SOURCES)}', _meant(kind, SOURCES))
    return SOURCES[kind]


def places_to_fill_in(text: str) -> tuple[tuple[int, str], ...]:
    """Return the line (from 1) and the key of every place in `text` that waits for a fact of the site."""
    return tuple((text.count("\n", 0, match.start()) + 1, match[1]) for match in _MARKED.finditer(text))


def write_draft(path: Path, text: str) -> None:
    """Write `text` to the new file `path`, making its folder. Raises ClusterError where there is a file already."""
    if path.exists():
        raise ClusterError(f"{path} exists already, and is not overwritten", "choose another name, or remove it")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as stream:
            stream.write(text)
    except OSError as error:
        raise ClusterError(f"{path} can't be written: {error.strerror}", "choose a folder that you may write") from None


def _text_of(source: str) -> str:
    known = {entry.name: entry for entry in catalog()}
    if source not in known:
        names = list(known)
        raise ClusterError(f'read --from "{source}", expected one of {", ".join(names)}', _meant(source, names))
    return known[source].path.read_text(encoding="utf-8")


def _meant(word: str, keys: list[str] | dict[str, str]) -> str:
    close = nearest(word, keys)
    return f"is {close} meant?" if close else ""
