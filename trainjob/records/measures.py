"""times-RRRR.jsonl and measurement.json: where the time of a rank went, and the figures of a benchmark."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Dict, List, Mapping, Optional

from trainjob.contract.paths import RunPaths
from trainjob.records import typed
from trainjob.records.files import append_json_line, read_json, write_json

# Where the time of an interval goes, in the order in which they are shown.
PHASES = ("data", "compute", "communication", "checkpoint")
# Written into the run directory by trainjob.train.measure, one object a file.
MEASUREMENT = "measurement.json"


@dataclass(frozen=True)
class RankTimes:
    """A line of times-RRRR.jsonl: where the time of one rank went during the `updates` that end with `update`."""

    attempt: int
    update: int
    updates: int
    seconds: Dict[str, float]  # by phase


def rank_times(paths: RunPaths, rank: int) -> typed.Lines[RankTimes]:
    """Return the lines of one rank, over all attempts."""
    return typed.Lines(RankTimes, paths.rank_times(rank))


def append_times(paths: RunPaths, rank: int, times: RankTimes) -> None:
    """Append a line of one rank. Raises OSError."""
    append_json_line(paths.rank_times(rank), typed.to_json(times))


def read_measurement(paths: RunPaths) -> Optional[Dict[str, Any]]:
    """Return what a benchmark wrote into its run directory; None if it wrote nothing that can be read."""
    figures = read_json(paths.folder / MEASUREMENT)
    return figures if isinstance(figures, dict) else None


def write_measurement(paths: RunPaths, figures: Mapping[str, object]) -> None:
    """Write the figures of a benchmark, atomically."""
    write_json(paths.folder / MEASUREMENT, figures)


@dataclass(frozen=True)
class MemoryFigures:
    """The memory of an instance that trains the whole model, in bytes, as trainjob.train.measure.memory measures it."""

    parameters: int  # their number
    weights: int
    gradients: int
    optimizer: int
    gathered: int  # at once, of a sharded model: the largest unit, and what lies outside units
    units: List[str] = field(default_factory=list)
    activations: Optional[int] = None  # of one micro batch; None if they can't be measured, and `why`
    recomputed: Optional[int] = None  # the same with --recompute
    why: str = ""
