"""What ranks have printed: one rank's bytes as they are, or all ranks' lines with the rank in front."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from trainjob.contract import job as jobs
from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths
from trainjob.runs import tagged
from trainjob.submit import mirror

_RANK_LOG = re.compile(r"rank-(\d{4,})\.log\Z")
_BLOCK_BYTES = 1 << 16


@dataclass
class Tail:
    """One log, read from where the last reading ended; only whole lines are handed on until `finish`."""

    path: Path
    prefix: bytes = b""
    end: bytes = b"\n"  # what a last line without a line end gets
    is_scripts: bool = False  # the job script's own log, where mpirun tags what instances print
    _offset: int = 0
    _rest: bytes = field(default=b"", repr=False)

    def new_lines(self) -> Iterator[bytes]:
        """Yield the whole lines that were added since the last call, each with its line end."""
        for block in self._new_blocks():
            *whole, self._rest = (self._rest + block).split(b"\n")
            for line in whole:
                yield from self._shown(line, b"\n")

    def finish(self) -> Iterator[bytes]:
        """Yield what is left: a last line that has no line end."""
        if self._rest:
            yield from self._shown(self._rest, self.end)
        self._rest = b""

    def _shown(self, line: bytes, end: bytes) -> Iterator[bytes]:
        return (self.prefix + text + end for text in (tagged.shown(line) if self.is_scripts else (line,)))

    def _new_blocks(self) -> Iterator[bytes]:
        try:
            stream = self.path.open("rb")
        except FileNotFoundError:
            return
        with stream:
            stream.seek(self._offset)
            while block := stream.read(_BLOCK_BYTES):
                self._offset += len(block)
                yield block


def ranks(paths: RunPaths) -> list[int]:
    """Return the ranks that have a log, in order."""
    found = (_RANK_LOG.match(path.name) for path in paths.logs.glob("rank-*.log"))
    return sorted(int(match.group(1)) for match in found if match)


def tails(paths: RunPaths, rank: int | None) -> list[Tail]:
    """Return the logs to read: one rank's, or every rank's and the job script's own.

    Raises UserError for a rank that has no log.
    """
    if rank is not None:
        _refuse_unknown(paths, rank)
        return [Tail(paths.rank_log(rank), end=b"")]
    every = (Tail(paths.rank_log(number), b"[%d] " % number) for number in ranks(paths))
    return [Tail(paths.scheduler_log, is_scripts=True), *every]


def _refuse_unknown(paths: RunPaths, rank: int) -> None:
    # Asked of the plan, not of the logs: a rank that has not begun yet has none, and is waited for.
    instances = jobs.read(paths.job).plan["topology"]["instances"]
    if not 0 <= rank < instances:
        raise UserError(f"run {paths.id} has no rank {rank}: it has ranks 0 to {instances - 1}")


def read(paths: RunPaths, rank: int | None) -> Iterator[bytes]:
    """Yield everything printed so far, log after log."""
    mirror.refresh_output(paths)
    for tail in tails(paths, rank):
        yield from tail.new_lines()
        yield from tail.finish()


def follow(paths: RunPaths, rank: int | None, ended: Callable[[], bool], wait: Callable[[], None]) -> Iterator[bytes]:
    """Yield what is printed until the run has ended, and all that it printed last."""
    followed: dict[Path, Tail] = {}
    while True:
        # Asked before reading: what a run prints last is there once it has ended.
        is_last = ended()
        mirror.refresh_output(paths)
        for tail in tails(paths, rank):
            yield from followed.setdefault(tail.path, tail).new_lines()
        if is_last:
            break
        wait()
    for tail in followed.values():
        yield from tail.finish()
