"""What launchers write down of their ranks while they run: what each uses, and where its processes are."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Iterator, List, Optional

from trainjob.contract.paths import RunPaths
from trainjob.records import typed
from trainjob.records.files import DamagedError, read_json_lines
from trainjob.records.typed import required


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
    """A line of usage-RRRR.jsonl: one rank with all its processes. `time` is in seconds since 1970.

    The first of an attempt is written when the rank starts; its `cpu_cores`, a mean since the one before, is None.
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
    other_world_size: Optional[int] = (
        None  # of ranks that a launcher in the command has started, unless it is the run's
    )


@dataclass(frozen=True)
class ProcessStack:
    """One process of a rank. `stack` is None if it does not run our Python hook."""

    pid: int
    command: str
    state: str  # the kernel's letter: R, S, D
    stack: Optional[str] = None


@dataclass(frozen=True)
class RankStacks:
    """stacks-RRRR.json: where the processes of one rank are, written for the request `word`."""

    word: str
    attempt: int
    rank: int
    host: str
    time: float
    processes: List[ProcessStack] = required()


def recorded(paths: RunPaths, rank: int) -> Iterator[UsageRecord]:
    """Yield the samples of one rank, over all attempts; damaged lines are passed over."""
    for fields in read_json_lines(paths.rank_usage(rank)):
        try:
            yield typed.from_json(UsageRecord, fields)
        except DamagedError:
            continue


def newest(paths: RunPaths, rank: int) -> Optional[UsageRecord]:
    """Return the last sample of one rank; None if there is none."""
    last = None
    for record in recorded(paths, rank):
        last = record
    return last
