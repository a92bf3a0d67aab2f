"""The elements of an array, as Slurm writes them: 0-9, 0-9:2, 1,3,7, and %3 for how many run at once."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from trainjob.contract.errors import RuleError

# Slurm's upper bound of MaxArraySize. A site's is usually lower (1001) and is read from its Slurm.
LARGEST = 4_000_000
MOST_ELEMENTS = 10_000
_RANGE = re.compile(r"(?P<first>[0-9]+)(?:-(?P<last>[0-9]+)(?::(?P<step>[0-9]+))?)?")
_EXPECTED = "expected the elements of an array as Slurm writes them"
_FORMS = 'give "0-9", "0-9:2" or "1,3,7", and "%3" after them for 3 at once'


class Array(NamedTuple):
    """The numbers of an array's elements, in order, and how many may run at once (None: all)."""

    numbers: tuple[int, ...]
    at_once: int | None

    @property
    def text(self) -> str:
        """The array in its shortest form."""
        return f"{ranges(self.numbers)}{'' if self.at_once is None else f'%{self.at_once}'}"


def parse(text: str) -> Array:
    """Return the array that `text` means. Raises RuleError."""
    elements, percent, most = text.partition("%")
    matches = [_RANGE.fullmatch(part) for part in elements.split(",")]
    if not all(matches) or (percent and not most.isdecimal()):
        raise RuleError(f'read "{text}", {_EXPECTED}', _FORMS)
    if percent and int(most) == 0:
        raise RuleError(f'read "{text}", which lets no element run', "leave %0 out, or give at least %1")
    numbers = sorted({number for match in matches if match for number in _numbers(match)})
    if len(numbers) > MOST_ELEMENTS:
        raise RuleError(f"has {len(numbers)} elements, and an array may have {MOST_ELEMENTS}", "submit it in parts")
    return Array(tuple(numbers), int(most) if percent else None)


def _numbers(match: re.Match[str]) -> range:
    first = int(match["first"])
    last, step = int(match["last"] or first), int(match["step"] or 1)
    if last > LARGEST or first > LARGEST:
        raise RuleError(
            f'read "{match[0]}", and the largest number of an element is {LARGEST}', "choose smaller numbers"
        )
    if last < first:
        raise RuleError(f'read "{match[0]}", which ends before it begins', f"is {last}-{first} meant?")
    if step == 0:
        raise RuleError(f'read "{match[0]}", and a step is at least 1', f"leave :{step} out, or give a larger step")
    return range(first, last + 1, step)


def ranges(numbers: Sequence[int]) -> str:
    """Return sorted numbers as ranges: 0-9,15."""
    edges = [at for at, (one, two) in enumerate(pairwise(numbers), 1) if two != one + 1]
    groups = (numbers[begin:end] for begin, end in pairwise((0, *edges, len(numbers))))
    return ",".join(str(group[0]) if len(group) == 1 else f"{group[0]}-{group[-1]}" for group in groups if group)
