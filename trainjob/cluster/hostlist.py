"""Host lists as Slurm writes them: pod-host[1-4], n[01-12], r[1-2]n[1-3], a[1,3-5],b.

This module expands every list as Slurm does, but refuses two mistakes that Slurm ignores: a repeated name and an empty
entry. Text after a bracket (n[1-2].example.org) is accepted too.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from trainjob.contract.errors import RuleError

MOST_HOSTS = 65_536

# A name must not begin with a dash, because it becomes an argument of ssh, mpirun and poprun.
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,252}", re.ASCII)
_RANGE = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18}))?", re.ASCII)
_PIECE = re.compile(r"([^\[\]]*)(?:\[([^\[\]]*)\])?")
_NUMBERED = re.compile(r"(.*?)([0-9]{1,18})", re.ASCII)


class HostlistError(RuleError):
    """A host list that can't be read: what was read, where, and the cure."""


def expand(hosts: str | Sequence[str]) -> tuple[str, ...]:
    """Return every host name of `hosts`, in order. `hosts` is a text with ranges, or a list of these texts.

    Raises HostlistError.
    """
    entries = [hosts] if isinstance(hosts, str) else hosts
    names: list[str] = []
    for entry in (part for text in entries for part in _split(text)):
        names.extend(_expand_entry(entry, MOST_HOSTS - len(names)))
    if not names:
        raise HostlistError("the host list is empty", "name at least one host")
    _refuse_duplicates(names)
    return tuple(names)


def compress(names: Iterable[str]) -> str:
    """Return the shortest text that `expand` and Slurm expand to `names`, in the same order.

    Raises HostlistError for an invalid or repeated name.
    """
    runs: list[_Run] = []
    listed = list(names)
    for name in listed:
        _check_name(name, name)
        match = _NUMBERED.fullmatch(name)
        stem, number = (match[1], match[2]) if match else (name, "")
        if runs and runs[-1].is_followed_by(stem, number):
            runs[-1] = runs[-1]._replace(last=number)
        else:
            runs.append(_Run(stem, number, number))
    _refuse_duplicates(listed)
    groups = itertools.groupby(runs, key=lambda run: (run.stem, run.first == ""))
    return ",".join(_write(stem, list(group)) for (stem, _), group in groups)


def _split(text: str) -> list[str]:
    """Return the entries of `text` at the commas outside of brackets."""
    if re.search(r"\s", text):
        raise HostlistError(f"{text!r} holds a space", "separate hosts by commas only, or write them as a list")
    entries, depth = [""], 0
    for part in re.split(r"([,\[\]])", text):
        depth = max(0, depth + {"[": 1, "]": -1}.get(part, 0))
        if part == "," and depth == 0:
            entries.append("")
        else:
            entries[-1] += part
    if "" in entries:
        raise HostlistError(f"{text!r} has an empty entry", "take the extra comma out, or name a host there")
    return entries


def _expand_entry(entry: str, most: int) -> Iterator[str]:
    _check_brackets(entry)
    pieces = [(piece[1], _ranges(piece[2], entry)) for piece in _PIECE.finditer(entry)]
    size = math.prod(sum(last - first + 1 for first, last, _ in ranges) for _, ranges in pieces if ranges)
    if size > most:
        raise HostlistError(f"{entry!r} makes more than {MOST_HOSTS:,} hosts, the most there may be", "shorten it")
    choices = [[text + number for number in _numbers(ranges)] for text, ranges in pieces]
    for parts in itertools.product(*choices):
        name = "".join(parts)
        _check_name(name, entry)
        yield name


def _check_brackets(entry: str) -> None:
    opened = None
    for position, sign in enumerate(entry):
        if sign == "[":
            if opened is not None:
                raise HostlistError(f"{entry!r} opens a [ inside the one at character {opened + 1}", "close that first")
            opened = position
        elif sign == "]":
            if opened is None:
                raise HostlistError(
                    f"{entry!r} has a ] at character {position + 1} without a [ before it", "write [ first"
                )
            opened = None
    if opened is not None:
        raise HostlistError(f"{entry!r} opens a [ at character {opened + 1} and never closes it", "write ]")


Range = tuple[int, int, int]  # first, last, digits of the first as written


def _ranges(inner: str | None, entry: str) -> list[Range]:
    """Return the ranges of one bracket; none if this piece of the entry has no bracket."""
    return [] if inner is None else [_range(part, entry) for part in inner.split(",")]


def _range(part: str, entry: str) -> Range:
    match = _RANGE.fullmatch(part)
    if not match:
        what = f"has {part!r} where a range belongs" if part else "has an empty range"
        raise HostlistError(f"{entry!r} {what}", "write numbers as [1-4], [01-12] or [1,3-5]")
    first, last = match[1], match[2] or match[1]
    if int(last) < int(first):
        raise HostlistError(f"{entry!r} has the range {part}, which runs backwards", f"write {last}-{first}")
    return int(first), int(last), len(first)


def _numbers(ranges: list[Range]) -> Iterator[str]:
    if not ranges:
        yield ""
    for first, last, digits in ranges:
        for number in range(first, last + 1):
            yield f"{number:0{digits}d}"


def _check_name(name: str, entry: str) -> None:
    if not _NAME.fullmatch(name):
        raise HostlistError(
            f"{entry!r} gives the host name {name!r}: a name has letters, digits, dots, dashes and underscores, "
            "begins with no dash or dot, and has at most 253 characters",
            "correct the name",
        )


def _refuse_duplicates(names: list[str]) -> None:
    if len(set(names)) == len(names):
        return
    seen: set[str] = set()
    twice = next(name for name in names if name in seen or seen.add(name))  # type: ignore[func-returns-value]
    raise HostlistError(f"host {twice} is named {names.count(twice)} times", "name every host once")


class _Run(NamedTuple):
    """Names whose last numbers follow each other; the numbers are "" for a name that does not end in one."""

    stem: str
    first: str
    last: str

    def is_followed_by(self, stem: str, number: str) -> bool:
        """Return whether `stem` + `number` is the next name, padded like the first one."""
        return bool(self.last) and stem == self.stem and number == str(int(self.last) + 1).zfill(len(self.first))


def _write(stem: str, runs: list[_Run]) -> str:
    texts = [run.first if run.first == run.last else f"{run.first}-{run.last}" for run in runs]
    if texts == [runs[0].first]:
        return stem + texts[0]
    return f"{stem}[{','.join(texts)}]"
