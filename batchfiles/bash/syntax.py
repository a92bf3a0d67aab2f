"""What bash itself says of a script's grammar: it reads it, and runs nothing."""

from __future__ import annotations

import re
from typing import NamedTuple

from trainjob.machines import process

_SAYS = re.compile(r"line ([0-9]+): (.*)")
_NOT_CLOSED = re.compile(r"looking for matching [`'](.)'")


class SyntaxFault(NamedTuple):
    """The line at which bash gives up, or in which what is never closed probably begins, and its words."""

    line: int
    text: str


def shebang_options(script: str) -> frozenset[str]:
    """Return the letters of `set` that the first line of a script gives to its shell."""
    first = script.partition("\n")[0]
    return frozenset("".join(re.findall(r"\s-([A-Za-z]+)", first)) if first.startswith("#!") else "")


def syntax_fault(script: bytes) -> SyntaxFault | None:
    """Return why bash can't read a script; None if it can. Raises process.CommandError where there is no bash."""
    ended = process.run(["bash", "-n", "/dev/stdin"], stdin=script, check=False, timeout_s=20)
    if ended.code == 0 and "syntax error" not in ended.stderr:  # of [[ it says so, and ends with 0
        return _not_closed(script, ended.stderr)
    match = next(filter(None, map(_SAYS.search, ended.stderr.splitlines())), None)
    if match is None:
        return None
    line, text = int(match[1]), match[2]
    quote = _NOT_CLOSED.search(text)
    if quote is not None and quote[1] in "\"'":
        lines = script.decode(errors="replace").split("\n")
        odd = (at for at, one in enumerate(lines, 1) if not one.lstrip().startswith("#") and one.count(quote[1]) % 2)
        line = next(odd, line)
    return SyntaxFault(line, text)


_TO_THE_END = re.compile(r"here-document at line ([0-9]+) delimited by end-of-file \(wanted [`'](.+)'\)")


def _not_closed(script: bytes, said: str) -> SyntaxFault | None:
    """Return the here-document that takes in the rest of the file, because blanks stand around its last line."""
    match = _TO_THE_END.search(said)
    lines = script.decode(errors="replace").split("\n")
    wanted = match[2] if match else ""
    at = next((at for at, line in enumerate(lines, 1) if match and at > int(match[1]) and line.strip() == wanted), None)
    return (
        None if at is None else SyntaxFault(at, f"blanks stand around {wanted}: the here-document goes on to the end")
    )
