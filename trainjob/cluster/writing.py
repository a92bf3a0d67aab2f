"""YAML that we write: laid out for people, and read back before anybody gets it.

YAML ends a line at more signs than a line feed (CR, U+0085, U+2028, U+2029), and its versions don't agree on which. So
a file that we write holds none of them as it stands, nor any other sign that can't be seen.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping

import yaml

from trainjob.cluster.document import AS_WRITTEN, MOST_BYTES, load
from trainjob.contract.errors import UserError
from trainjob.contract.quoting import visible


class UnwritableError(UserError):
    """Values that no YAML file states as they are meant."""

    code = "unwritable"


def comment(text: str, indent: str = "") -> Iterator[str]:
    """Yield the lines of a comment, which nothing in `text` can end."""
    for line in text.split("\n") if text else ():
        yield f"{indent}# {visible(line.lstrip('# '))}"


def scalar(value: object, *, in_line: bool = True) -> str:
    """Return a text, a number or a truth value on one line; `in_line`: it stands in brackets."""
    if isinstance(value, str) and not value.isprintable():
        return _dumped(value, style='"')
    plain = _dumped([value])[1:-1] if in_line else _dumped(value)
    is_quoted = plain.startswith("'") and '"' not in plain
    return json.dumps(value, ensure_ascii=False) if is_quoted or re.fullmatch(r"[0-9:-]*:[0-9:]*", plain) else plain


def item(text: str) -> Iterator[str]:
    """Yield the lines of a list's item, at an indent of two: as they stand if `text` has several that can be seen."""
    lines = text.split("\n")
    is_seen = all(line.replace("\t", "").isprintable() for line in lines)
    if len(lines) == 1 or not is_seen or text.lstrip("\n")[:1] in ("", " ", "\t"):
        yield f"  - {scalar(text, in_line=False)}"
        return
    end = "-" if lines[-1] else "+" if text.endswith("\n\n") else ""
    yield f"  - |{end}"
    for line in lines if lines[-1] else lines[:-1]:
        yield f"    {line}" if line else ""


def read_back(lines: Iterable[str], meant: Mapping[str, object]) -> str:
    """Return the lines as a file, which says what is `meant` and no more. Raises UnwritableError."""
    text = "".join(f"{line}\n" for line in lines)
    if len(text.encode("utf-8", "replace")) > MOST_BYTES:
        raise UnwritableError(
            f"these values take more than the {MOST_BYTES // 1024} kB that such a file may have", "write it by hand"
        )
    document = load(text)
    parsed, wanted = (json.dumps(one, sort_keys=True) for one in (document.values, _as_read(dict(meant))))
    if document.problems or parsed != wanted or not text.replace("\n", "").replace("\t", "").isprintable():
        why = document.problems[0].text if document.problems else "read back, it says something else"
        raise UnwritableError(
            f"these values can't be written as YAML: {why}", "take out signs that are no text, or write it by hand"
        )
    return text


def _dumped(value: object, style: str | None = None) -> str:
    text: str = yaml.safe_dump(
        value, default_style=style, default_flow_style=True, width=10**9, allow_unicode=style is None
    )
    return text.removesuffix("\n").removesuffix("\n...")


def _as_read(value: object, *, as_written: bool = False) -> object:
    """Return values as a reader takes them: below some keys all are text."""
    if isinstance(value, Mapping):
        return {name: _as_read(one, as_written=as_written or name in AS_WRITTEN) for name, one in value.items()}
    if isinstance(value, list):
        return [_as_read(one, as_written=as_written) for one in value]
    return str(value) if as_written else value
