"""stacks-RRRR.json: the Python stacks of a rank's processes, which its launcher writes when it is asked."""

from __future__ import annotations

import contextlib
import os
import re
from dataclasses import dataclass
from typing import Callable, Dict, FrozenSet, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from trainjob.contract import clock
from trainjob.contract.liveness import IDLE_CORES
from trainjob.contract.paths import RunPaths
from trainjob.records import attempts, typed
from trainjob.records.files import DamagedError, parse_json, write_json
from trainjob.records.typed import required

# Launchers look for requests once a second; one whose host is frozen never does.
_ANSWERED_WITHIN_S, _POLL_S = 5.0, 0.1
_MOST_NAMED, _MOST_FRAMES = 8, 3
_FRAME = re.compile(r'(?m)^\s*File "([^"\n]*)", line (\d+) in (.*)$')
# A thread that only reports to a tracker writes less; a loader, a download or a checkpoint much more.
_MOST_IO_PER_S = 16 << 10
_WAITS_FOR_DISK = "D"
_MOVED, _COMPUTED = frozenset(["stacks", "cpu"]), frozenset(["cpu"])


@dataclass(frozen=True)
class ProcessStack:
    """One process of a rank. `stack` is None if it does not run our Python hook."""

    pid: int
    command: str
    state: str  # the kernel's letter: R, S, D
    stack: Optional[str] = None
    cpu_s: Optional[float] = None  # so far
    io_bytes: Optional[int] = None  # read and written so far


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


def request(paths: RunPaths, prefix: str) -> str:
    """Have all launchers write down the stacks of their ranks, and return the word of the request.

    An existing one with this `prefix` is not made again. On a full disk, no rank answers.
    """
    asked = attempts.asked_for_stacks(paths) or ""
    if asked.startswith(prefix):
        return asked
    asked = "%s%d" % (prefix, os.getpid())
    with contextlib.suppress(OSError):
        attempts.ask_for_stacks(paths, asked)
    return asked


def wait(paths: RunPaths, ranks: int, prefix: str, are_ready: Callable[[], bool] = lambda: True) -> None:
    """Wait until the stacks of all ranks are written for such a request, and they are ready; for 5 s at most.

    The end of one rank ends all.
    """
    deadline = clock.monotonic() + _ANSWERED_WITHIN_S
    while clock.monotonic() < deadline:
        if all(word(paths, rank).startswith(prefix) for rank in range(ranks)) and are_ready():
            return
        clock.sleep(_POLL_S)


def named(ranks: Sequence[int]) -> str:
    """Return the numbers of ranks as a line shows them: the first eight."""
    return ", ".join(map(str, ranks[:_MOST_NAMED])) + (" …" if len(ranks) > _MOST_NAMED else "")


class StackGroup(NamedTuple):
    """Ranks that are at the same place: the frames of their main thread, the innermost first."""

    ranks: List[int]
    frames: List[str]

    def __str__(self) -> str:
        who = "rank %s is" if len(self.ranks) == 1 else "%d ranks (%%s) are" % len(self.ranks)
        return "%s in %s" % (who % named(self.ranks), " ← ".join(self.frames[:_MOST_FRAMES]) or "no Python code")


def groups(listed: Sequence[RankStacks]) -> List[StackGroup]:
    """Return the ranks by the place where they are, the smallest group first: what is odd explains what hangs."""
    found: Dict[Tuple[str, ...], List[int]] = {}
    for one in listed:
        found.setdefault(tuple(_main_thread(one)), []).append(one.rank)
    return sorted(
        (StackGroup(sorted(ranks), list(frames)) for frames, ranks in found.items()), key=lambda one: len(one.ranks)
    )


def _main_thread(one: RankStacks) -> List[str]:
    text = next((process.stack for process in one.processes if process.stack), "") or ""
    # The main thread handles the signal; where another one does, the main thread is printed last.
    threads = re.split(r"(?m)^(?=(?:Current thread|Thread) )", text)
    main = next((thread for thread in threads if thread.startswith("Current")), threads[-1])
    return ["%s (%s:%s)" % (name, file.rpartition("/")[2], line) for file, line, name in _FRAME.findall(main)]


def signs_of_life(before: Mapping[int, RankStacks], after: Mapping[int, RankStacks]) -> FrozenSet[str]:
    """Return the signs of life that two looks at ranks show, by name (contract/liveness.py).

    A rank that moved may have computed as well; who was not seen before, or not at all, is taken to have moved.
    """
    shown = [_signs(before[rank], one) if rank in before else _MOVED for rank, one in after.items()]
    return frozenset().union(*shown) if shown else _MOVED


def _signs(before: RankStacks, after: RankStacks) -> FrozenSet[str]:
    earlier = {process.pid: process for process in before.processes}
    took_s, used_s, moved, waits = after.time - before.time, 0.0, 0, False
    if took_s <= 0 or earlier.keys() != {process.pid for process in after.processes}:
        return _MOVED
    for process in after.processes:
        then = earlier[process.pid]
        if process.stack != then.stack or process.cpu_s is None or then.cpu_s is None:
            return _MOVED
        used_s += process.cpu_s - then.cpu_s
        moved += (process.io_bytes or 0) - (then.io_bytes or 0)
        waits |= process.state == then.state == _WAITS_FOR_DISK
    if moved > _MOST_IO_PER_S * took_s:
        return _MOVED
    return _COMPUTED if waits or used_s >= IDLE_CORES * took_s else frozenset()
