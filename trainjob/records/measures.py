"""What the runtime measures and others read: phases of an interval, how far a run is, the file of a benchmark."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Dict, Iterator, List, Optional

from trainjob.contract.paths import RunPaths
from trainjob.records import typed
from trainjob.records.files import DamagedError, read_json_lines

# Where the time of an interval goes, in the order in which they are shown.
PHASES = ("data", "compute", "communication", "checkpoint")
# Written into the run directory by trainjob.train.measure, one object a file.
MEASUREMENT = "measurement.json"

# An update without what makes it faster, and what `bench step` measures beside it. The first is the control: whatever
# it seems to gain is noise.
PLAIN_STEP: Dict[str, Any] = {
    "compile": False,
    "memory_format": "contiguous",
    "optimizer_implementation": "for-loop",
}
STEP_VARIATIONS: Dict[str, Dict[str, Any]] = {
    "plain, once more": {},
    "compile": {"compile": True},
    "channels-last": {"memory_format": "channels-last"},
    "foreach": {"optimizer_implementation": "foreach"},
    "fused": {"optimizer_implementation": "fused"},
}


@dataclass(frozen=True)
class ProgressRecord:
    """progress.json: how far a run is, and what its disk refuses. `heartbeat` is in seconds since 1970."""

    attempt: int = 0
    epoch: Optional[int] = None
    update: Optional[int] = None
    total_updates: Optional[int] = None
    heartbeat: Optional[float] = None
    began_at: Optional[int] = None  # the update that the attempt continued from
    durable_update: Optional[int] = None  # of the newest checkpoint on disk; 0: none yet
    trouble: Optional[str] = None  # what the disk refuses at present
    passed_over: List[str] = field(default_factory=list)  # checkpoints that the attempt did not resume from, and why
    checkpoints_not_written: int = 0  # by this attempt


@dataclass(frozen=True)
class RankTimes:
    """A line of times-RRRR.jsonl: where the time of one rank went during the `updates` that end with `update`."""

    attempt: int
    update: int
    updates: int
    seconds: Dict[str, float]  # by phase


def rank_times(paths: RunPaths, rank: int) -> Iterator[RankTimes]:
    """Yield the lines of one rank, over all attempts; damaged ones are passed over."""
    for fields in read_json_lines(paths.rank_times(rank)):
        try:
            yield typed.from_json(RankTimes, fields)
        except DamagedError:
            continue


@dataclass(frozen=True)
class MemoryFigures:
    """What an instance holds that trains the whole model, in bytes, as trainjob.train.measure.memory measures it."""

    parameters: int  # their number
    weights: int
    gradients: int
    optimizer: int
    gathered: int  # at once, of a sharded model: the largest unit, and what lies outside units
    units: List[str] = field(default_factory=list)
    activations: Optional[int] = None  # of one micro batch; None if they can't be measured, and `why`
    recomputed: Optional[int] = None  # the same with --recompute
    why: str = ""
