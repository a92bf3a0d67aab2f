"""profile/: for each profiled rank a trace and a summary of its updates."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import List, Optional

from trainjob.contract.paths import RunPaths
from trainjob.records import typed
from trainjob.records.files import write_json


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
