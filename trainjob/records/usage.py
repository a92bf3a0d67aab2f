"""usage-RRRR.jsonl: what each rank uses, as launchers sample it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Dict, List, Optional

from trainjob.contract.paths import RunPaths
from trainjob.records import typed
from trainjob.records.files import append_json_line


@dataclass(frozen=True)
class DeviceUse:
    """One device of a rank. `use` is the share of the last interval in which it computed; None if no tool says."""

    device: str  # GPU 0, IPU 3
    use: Optional[float] = None
    memory_bytes: Optional[int] = None
    memory_total_bytes: Optional[int] = None
    power_w: Optional[float] = None


@dataclass(frozen=True)
class UsageRecord:
    """A sample of one rank with all its processes. `time` is in seconds since 1970.

    The first of an attempt is written when the rank starts; its `cpu_cores`, a mean since the one before, is None. It
    alone has `openmp`: the variables that say how many threads the rank has, and how they wait for each other.
    """

    attempt: int
    rank: int
    host: str  # under Slurm the node's name
    pid: int
    time: float
    cpus: int  # that the rank may use
    memory_bytes: int
    cpu_cores: Optional[float] = None
    memory_limit_bytes: Optional[int] = None
    devices: List[DeviceUse] = field(default_factory=list)
    openmp: Dict[str, str] = field(default_factory=dict)
    other_world_size: Optional[int] = None  # of ranks that the command itself has started, unless it is the run's


def lines(paths: RunPaths, rank: int) -> typed.Lines[UsageRecord]:
    """Return the samples of one rank, over all attempts."""
    return typed.Lines(UsageRecord, paths.rank_usage(rank))


def newest(paths: RunPaths, rank: int) -> Optional[UsageRecord]:
    """Return the last sample of one rank; None if there is none."""
    last = None
    for record in lines(paths, rank).new():
        last = record
    return last


def append(paths: RunPaths, record: UsageRecord) -> None:
    """Append a sample. Raises OSError."""
    append_json_line(paths.rank_usage(record.rank), typed.to_json(record))
