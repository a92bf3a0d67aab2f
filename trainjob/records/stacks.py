"""stacks-RRRR.json: the Python stacks of a rank's processes, which its launcher writes when it is asked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import List, Optional

from trainjob.contract.paths import RunPaths
from trainjob.records import typed
from trainjob.records.files import DamagedError, parse_json, write_json
from trainjob.records.typed import required


@dataclass(frozen=True)
class ProcessStack:
    """One process of a rank. `stack` is None if it does not run our Python hook."""

    pid: int
    command: str
    state: str  # the kernel's letter: R, S, D
    stack: Optional[str] = None


@dataclass(frozen=True)
class RankStacks:
    """The processes of one rank, written for the request `word`."""

    word: str
    attempt: int
    rank: int
    host: str
    time: float
    processes: List[ProcessStack] = required()


def write(paths: RunPaths, record: RankStacks) -> None:
    """Write the stacks of one rank, atomically. Raises OSError."""
    write_json(paths.rank_stacks(record.rank), typed.to_json(record))


def read(paths: RunPaths, rank: int) -> Optional[RankStacks]:
    """Return the stacks of one rank that were written last; None if there are none, or damaged ones."""
    return typed.read(RankStacks, paths.rank_stacks(rank))


def word(paths: RunPaths, rank: int) -> str:
    """Return the word of the request that a rank's launcher answered last; empty before the first."""
    found = read(paths, rank)
    return found.word if found is not None else ""


def parse(content: bytes) -> Optional[RankStacks]:
    """Return the record in the bytes of such a file; None for a damaged one."""
    try:
        return typed.from_json(RankStacks, parse_json(content))
    except DamagedError:
        return None
