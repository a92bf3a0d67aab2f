"""Forms of text that settings take: which updates and ranks are profiled, and the expression that finds progress."""

from __future__ import annotations

import re
from typing import List, Mapping, NamedTuple, Pattern

_MOST_UPDATES = 1000
# What an expression of a job file may find in a line that a command prints, by the names of its groups.
COUNTS = ("update", "total", "epoch", "epochs")
# How a job states what its ranks run in.
ENVIRONMENTS = ("uv", "venv", "archive")
FIGURES = ("loss", "accuracy", "learning_rate", "samples_per_s")


class UpdateRange(NamedTuple):
    """The first and the last update that are profiled, counted from 1."""

    first: int
    last: int


def parse_updates(text: str) -> UpdateRange:
    """Return the updates that `text` names. Raises ValueError, whose words hold the rule and the cure."""
    match = re.fullmatch(r"([0-9]{1,12}):([0-9]{1,12})", text)
    if match is None:
        raise ValueError('read "%s", expected the first and the last update to profile: "20:30"' % text)
    first, last = int(match[1]), int(match[2])
    if not 1 <= first <= last:
        raise ValueError('read "%s", and updates are counted from 1, the first one named first' % text)
    if last - first >= _MOST_UPDATES:
        raise ValueError("names %d updates, and a trace holds at most %d" % (last - first + 1, _MOST_UPDATES))
    return UpdateRange(first, last)


def parse_ranks(text: str) -> List[int]:
    """Return the ranks that `text` names, in order. Raises ValueError."""
    if not re.fullmatch(r"[0-9]{1,6}(,[0-9]{1,6})*", text):
        raise ValueError('read "%s", expected ranks: "0" or "0,3"' % text)
    return sorted({int(number) for number in text.split(",")})


def parse_environment(stated: Mapping[str, str]) -> None:
    """Raise ValueError unless `stated` names one environment, and where."""
    kinds = [name for name in ENVIRONMENTS if name in stated]
    unknown = sorted(set(stated) - {*ENVIRONMENTS, "folder"})
    if unknown or len(kinds) != 1:
        read = ", ".join(sorted(stated)) or "nothing"
        raise ValueError("read %s, expected one of %s, and folder" % (read, ", ".join(ENVIRONMENTS)))
    if kinds == ["uv"] and (stated["uv"].startswith(("/", "~")) or not stated["uv"].endswith("pyproject.toml")):
        raise ValueError("read uv: %s, expected the path of a pyproject.toml in the project" % stated["uv"])
    for name in ("venv", "archive", "folder"):
        if not stated.get(name, "/").startswith(("/", "~/")):
            raise ValueError("read %s: %s, expected a path that every node sees: /… or ~/…" % (name, stated[name]))


def parse_pattern(text: str) -> Pattern[str]:
    """Return the expression that finds a command's progress in a line. Raises ValueError."""
    try:
        pattern = re.compile(text)
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError("read %r, which is no regular expression: %s" % (text, error)) from None
    unknown = sorted(set(pattern.groupindex) - {*COUNTS, *FIGURES})
    if unknown:
        raise ValueError(
            "read %r, whose group %s is not one of %s" % (text, unknown[0], ", ".join((*COUNTS, *FIGURES)))
        )
    if "update" not in pattern.groupindex:
        raise ValueError(r"read %r, expected a group named update, as in 'step (?P<update>\d+)'" % text)
    return pattern
