"""profile/: for each profiled rank a trace and a summary of its updates, and which updates and ranks are profiled."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import List, NamedTuple, Optional

from trainjob.contract.paths import RunPaths
from trainjob.records import typed
from trainjob.records.files import write_json

_MOST_UPDATES = 1000


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


@dataclass(frozen=True)
class Operator:
    """One operator, or one kernel of a GPU: how often it ran and for how long by itself, in all profiled updates."""

    name: str
    calls: int
    seconds: float


@dataclass(frozen=True)
class RankProfile:
    """The profiled updates of one rank. Communication is hidden where the device, or the thread, computes meanwhile."""

    rank: int
    attempt: int
    device: str
    first: int
    last: int
    seconds: float
    operators: List[Operator] = field(default_factory=list)  # the longest first
    communication_s: Optional[float] = None  # None: the trace shows none
    exposed_s: Optional[float] = None  # of it, what is not hidden


def trace_of(paths: RunPaths, rank: int) -> Path:
    """Return the trace of one rank, as chrome://tracing and Perfetto read it."""
    return paths.folder / "profile" / ("rank-%04d.trace.json.gz" % rank)


def write(paths: RunPaths, profile: RankProfile) -> None:
    """Write the summary of one rank beside its trace."""
    write_json(paths.folder / "profile" / ("rank-%04d.json" % profile.rank), typed.to_json(profile))


def recorded(paths: RunPaths) -> List[RankProfile]:
    """Return the summaries of a run, in the order of ranks; damaged ones are left out."""
    summaries = sorted((paths.folder / "profile").glob("rank-????.json"))
    profiles = (typed.read(RankProfile, path) for path in summaries)
    return [profile for profile in profiles if profile is not None]
