"""Text in Slurm's formats: host lists, the elements of an array, and durations."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from trainjob.contract.errors import RuleError

# -- durations -------------------------------------------------------------------------------------------------------


def seconds(time: str) -> int | None:
    """Return the seconds of a duration in one of Slurm's formats; None if it is unlimited. The text must be valid.

    The formats: minutes, minutes:seconds, hours:minutes:seconds, days-hours, days-hours:minutes[:seconds].
    """
    if time in ("UNLIMITED", "INFINITE"):
        return None
    days, dash, rest = time.rpartition("-")
    parts = [int(part) for part in rest.split(":")]
    if dash or len(parts) == 3:
        hours, minutes, left = (*parts, 0, 0)[:3]
    else:
        hours, (minutes, left) = 0, (*parts, 0)[:2]
    return ((int(days or 0) * 24 + hours) * 60 + minutes) * 60 + left


def duration(total_s: int) -> str:
    """Return seconds as hours:minutes:seconds, which every release of Slurm accepts: "30:00:00"."""
    return f"{total_s // 3600:02}:{total_s % 3600 // 60:02}:{total_s % 60:02}"


# -- the elements of an array: 0-9, 0-9:2, 1,3,7, and %3 for how many run at once ------------------------------------

# Slurm's upper bound of MaxArraySize. A site's is usually lower (1001) and is read from its Slurm.
LARGEST = 4_000_000
MOST_ELEMENTS = 10_000
_ELEMENTS = re.compile(r"(?P<first>[0-9]+)(?:-(?P<last>[0-9]+)(?::(?P<step>[0-9]+))?)?")


class Array(NamedTuple):
    """The numbers of an array's elements, in order, and how many may run at once (None: all)."""

    numbers: tuple[int, ...]
    at_once: int | None

    @property
    def text(self) -> str:
        """The array in its shortest form."""
        return f"{ranges(self.numbers)}{'' if self.at_once is None else f'%{self.at_once}'}"


def parse_array(text: str) -> Array:
    """Return the array that `text` means. Raises RuleError."""
    elements, percent, most = text.partition("%")
    matches = [_ELEMENTS.fullmatch(part) for part in elements.split(",")]
    if not all(matches) or (percent and not most.isdecimal()):
        raise RuleError(
            f'read "{text}", expected the elements of an array as Slurm writes them',
            'give "0-9", "0-9:2" or "1,3,7", and "%3" after them for 3 at once',
        )
    if percent and int(most) == 0:
        raise RuleError(f'read "{text}", which lets no element run', "leave %0 out, or give at least %1")
    numbers = sorted({number for match in matches if match for number in _numbers(match)})
    if len(numbers) > MOST_ELEMENTS:
        raise RuleError(f"has {len(numbers)} elements, and an array may have {MOST_ELEMENTS}", "submit it in parts")
    return Array(tuple(numbers), int(most) if percent else None)


def _numbers(match: re.Match[str]) -> range:
    read, first = f'read "{match[0]}"', int(match["first"])
    last, step = int(match["last"] or first), int(match["step"] or 1)
    if last > LARGEST or first > LARGEST:
        raise RuleError(f"{read}, and the largest number of an element is {LARGEST}", "choose smaller numbers")
    if last < first:
        raise RuleError(f"{read}, which ends before it begins", f"is {last}-{first} meant?")
    if step == 0:
        raise RuleError(f"{read}, and a step is at least 1", f"leave :{step} out, or give a larger step")
    return range(first, last + 1, step)


def ranges(numbers: Sequence[int]) -> str:
    """Return sorted numbers as ranges: 0-9,15."""
    edges = [at for at, (one, two) in enumerate(pairwise(numbers), 1) if two != one + 1]
    groups = (numbers[begin:end] for begin, end in pairwise((0, *edges, len(numbers))))
    return ",".join(str(group[0]) if len(group) == 1 else f"{group[0]}-{group[-1]}" for group in groups if group)


# -- host lists: pod-host[1-4], n[01-12], r[1-2]n[1-3], a[1,3-5],b ---------------------------------------------------
# They are expanded as Slurm does, but two mistakes that Slurm ignores are refused: a repeated name and an empty entry.
# Text after a bracket (n[1-2].example.org) is accepted too.

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
    names: list[str] = []
    for text in [hosts] if isinstance(hosts, str) else hosts:
        for entry in _entries(text):
            names.extend(_expanded(entry, MOST_HOSTS - len(names)))
    if not names:
        raise HostlistError("the host list is empty", "name at least one host")
    _refuse_duplicates(names)
    return tuple(names)


def compress(names: Iterable[str]) -> str:
    """Return the shortest text that `expand` and Slurm expand to `names`, in the same order.

    Raises HostlistError for an invalid or repeated name.
    """
    runs: list[tuple[str, str, str]] = []  # a stem, and its first and last number; "" for a name without one
    listed = list(names)
    for name in listed:
        _check_name(name, name)
        match = _NUMBERED.fullmatch(name)
        stem, number = (match[1], match[2]) if match else (name, "")
        before, first, last = runs[-1] if runs else ("", "", "")
        # The next name has the next number, padded like the first one.
        if last and stem == before and number == str(int(last) + 1).zfill(len(first)):
            runs[-1] = stem, first, number
        else:
            runs.append((stem, number, number))
    _refuse_duplicates(listed)
    texts = []
    for (stem, _), group in itertools.groupby(runs, key=lambda run: (run[0], run[1] == "")):
        parts = [first if first == last else f"{first}-{last}" for _, first, last in group]
        is_single = len(parts) == 1 and "-" not in parts[0]
        texts.append(stem + parts[0] if is_single else f"{stem}[{','.join(parts)}]")
    return ",".join(texts)


def _entries(text: str) -> list[str]:
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


def _expanded(entry: str, most: int) -> Iterator[str]:
    """Yield the names of one entry; there may be `most`."""
    opened = None
    for position, sign in enumerate(entry, 1):
        if sign == "[" and opened is not None:
            raise HostlistError(f"{entry!r} opens a [ inside the one at character {opened}", "close that first")
        if sign == "]" and opened is None:
            raise HostlistError(f"{entry!r} has a ] at character {position} without a [ before it", "write [ first")
        opened = position if sign == "[" else None if sign == "]" else opened
    if opened is not None:
        raise HostlistError(f"{entry!r} opens a [ at character {opened} and never closes it", "write ]")
    pieces = [
        (piece[1], None if piece[2] is None else [_range(part, entry) for part in piece[2].split(",")])
        for piece in _PIECE.finditer(entry)
    ]
    if math.prod(sum(len(numbers) for numbers, _ in ranges) for _, ranges in pieces if ranges) > most:
        raise HostlistError(f"{entry!r} makes more than {MOST_HOSTS:,} hosts, the most there may be", "shorten it")
    choices = [
        [text] if ranges is None else [f"{text}{n:0{digits}d}" for numbers, digits in ranges for n in numbers]
        for text, ranges in pieces
    ]
    for parts in itertools.product(*choices):
        name = "".join(parts)
        _check_name(name, entry)
        yield name


def _range(part: str, entry: str) -> tuple[range, int]:
    """Return the numbers of a range in a bracket, and how many digits its first one is written with."""
    match = _RANGE.fullmatch(part)
    if not match:
        what = f"has {part!r} where a range belongs" if part else "has an empty range"
        raise HostlistError(f"{entry!r} {what}", "write numbers as [1-4], [01-12] or [1,3-5]")
    first, last = match[1], match[2] or match[1]
    if int(last) < int(first):
        raise HostlistError(f"{entry!r} has the range {part}, which runs backwards", f"write {last}-{first}")
    return range(int(first), int(last) + 1), len(first)


def _check_name(name: str, entry: str) -> None:
    if not _NAME.fullmatch(name):
        raise HostlistError(
            f"{entry!r} gives the host name {name!r}: a name has letters, digits, dots, dashes and underscores, "
            "begins with no dash or dot, and has at most 253 characters",
            "correct the name",
        )


def _refuse_duplicates(names: Sequence[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise HostlistError(f"host {name} is named {names.count(name)} times", "name every host once")
        seen.add(name)
