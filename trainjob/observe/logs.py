"""The output of ranks: one rank's unchanged, or the lines of all ranks with the rank in front."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from trainjob.backends import mirror
from trainjob.contract.paths import RunPaths
from trainjob.records import job as jobs
from trainjob.records import submission as submissions
from trainjob.records.files import DamagedError, open_regular

_RANK_LOG = re.compile(r"rank-(\d{4,})\.log\Z")
_BLOCK_BYTES = 1 << 16
# mpirun's tags in a job script's log, as in [1,3]<stdout>:text, and lines of poprun itself.
_TAG = re.compile(rb"\[\d+,(\d+)\]<(?:stdout|stderr|stddiag)>:")
_OWN = re.compile(rb"\d\d:\d\d:\d\d\.\d+ \d+ POPRUN \[[A-Z]\] ")


@dataclass
class Tail:
    """One log, read on from where the last reading stopped.

    A line that is begun waits for its end, but a progress bar's carriage returns, and 64 kB, are passed on at once.
    """

    path: Path
    prefix: bytes = b""
    end: bytes = b"\n"  # what a last line without a line end gets
    is_scripts: bool = False  # the job script's own log, where mpirun tags what instances print
    last_lines: int | None = None  # begin so many lines before the end; None: at the beginning
    is_mid_line: bool = field(default=False, init=False)
    _offset: int = field(default=0, init=False)
    _rest: bytes = field(default=b"", init=False, repr=False)

    def new(self) -> Iterator[bytes]:
        """Yield what was added since the last call, in pieces of any length, the prefix at the start of each line."""
        for block in self._new_blocks():
            text = self._rest + block
            # A carriage return at the very end may be half of a line end.
            end = max(text.rfind(b"\n"), text.rfind(b"\r", 0, -1)) + 1
            if not end and len(text) >= _BLOCK_BYTES:
                end = len(text)
            text, self._rest = text[:end], text[end:]
            if text:
                yield self._without_tags(text) if self.is_scripts else self._with_prefix(text)
                self.is_mid_line = not text.endswith(b"\n")

    def finish(self) -> Iterator[bytes]:
        """Yield what is left: a last line without a line end."""
        if self._rest:
            yield (self._without_tags(self._rest) if self.is_scripts else self._with_prefix(self._rest)) + self.end
        elif self.is_mid_line and self.end:
            yield self.end
        self._rest, self.is_mid_line = b"", False

    def interrupt(self) -> bytes:
        """Return what ends the line that was begun, because another log's output comes next."""
        begun, self.is_mid_line = self.is_mid_line, False
        return b"\n" if begun else b""

    def _with_prefix(self, text: bytes) -> bytes:
        if not self.prefix:
            return text
        lines = text.replace(b"\n", b"\n" + self.prefix)
        if text.endswith(b"\n"):
            lines = lines[: -len(self.prefix)]
        return lines if self.is_mid_line else self.prefix + lines

    def _without_tags(self, text: bytes) -> bytes:
        whole, newline, rest = text.rpartition(b"\n")
        lines = [*whole.split(b"\n"), rest] if newline else [rest]
        return b"\n".join(b"\n".join(shown(line)) for line in lines)

    def _new_blocks(self) -> Iterator[bytes]:
        try:
            stream = open_regular(self.path)
        except FileNotFoundError:
            return
        except (OSError, DamagedError) as error:
            if not self._offset:
                self._offset = -1
                why = getattr(error, "strerror", None) or error
                yield f"trainjob: {self.path.name} can't be read: {why}\n".encode()
            return
        with stream:
            if self.last_lines is not None and not self._offset:
                self._offset = _start_of_last(stream, self.last_lines)
            stream.seek(max(0, self._offset))
            while block := stream.read(_BLOCK_BYTES):
                self._offset = stream.tell()
                yield block


def _start_of_last(stream: BinaryIO, lines: int) -> int:
    """Return where the last `lines` lines of a file begin."""
    start = stream.seek(0, os.SEEK_END)
    # A line feed at the very end is that of the last line.
    left, is_end = lines, True
    while start > 0 and lines:
        size = min(_BLOCK_BYTES, start)
        start = stream.seek(start - size)
        block = stream.read(size)
        end = len(block) - (is_end and block.endswith(b"\n"))
        is_end = False
        while (end := block.rfind(b"\n", 0, end)) >= 0:
            left -= 1
            if left <= 0:
                return start + end + 1
    return start


def ranks(paths: RunPaths) -> list[int]:
    """Return the ranks that have a log, in order."""
    matches = (_RANK_LOG.match(path.name) for path in paths.logs.glob("rank-*.log"))
    return sorted(int(match.group(1)) for match in matches if match)


def tails(paths: RunPaths, rank: int | None, last_lines: int | None = None) -> list[Tail]:
    """Return the logs to read: one rank's, or every rank's and the job script's own, or their `last_lines`.

    Raises UserError for a rank that has no log.
    """
    if rank is not None:
        # By the plan, not by the logs: a rank that has not begun yet has none, and is waited for.
        jobs.read(paths.job).plan.topology.refuse_unknown_rank(paths.id, rank)
        return [Tail(paths.rank_log(rank), end=b"", last_lines=last_lines)]
    every = (Tail(paths.rank_log(number), b"[%d] " % number, last_lines=last_lines) for number in ranks(paths))
    return [Tail(paths.scheduler_log, is_scripts=True, last_lines=last_lines), *every]


def read(paths: RunPaths, rank: int | None, last_lines: int | None = None) -> Iterator[bytes]:
    """Yield what was printed so far, or the last lines of each log, log after log, in pieces of any length."""
    mirror.refresh_output(paths, submissions.read(paths))
    for tail in tails(paths, rank, last_lines):
        yield from tail.new()
        yield from tail.finish()


def follow(
    paths: RunPaths,
    rank: int | None,
    ended: Callable[[], bool],
    wait: Callable[[], object],
    last_lines: int | None = None,
) -> Iterator[bytes]:
    """Yield what is printed until the run has ended, from the beginning or the last lines of each log on."""
    together = Together()
    submission = submissions.read(paths)  # once: a run stays on its machine
    while True:
        # Before reading: once a run has ended, all that it printed is there.
        is_last = ended()
        mirror.refresh_output(paths, submission)
        yield from together.new(tails(paths, rank, last_lines))
        if is_last:
            break
        wait()
    yield from together.finish()


class Together:
    """Several logs, read on together: a line of one that is begun ends before another's begins."""

    def __init__(self) -> None:
        self._tails: dict[Path, Tail] = {}
        self._last: Tail | None = None

    def new(self, tails: Iterable[Tail]) -> Iterator[bytes]:
        """Yield what was added to these logs since the last call."""
        for one in tails:
            tail = self._tails.setdefault(one.path, one)
            for text in tail.new():
                if self._last is not None and self._last is not tail:
                    yield self._last.interrupt()
                self._last = tail
                yield text

    def finish(self) -> Iterator[bytes]:
        """Yield what is left of each log."""
        for tail in self._tails.values():
            yield from tail.finish()


def shown(line: bytes) -> Iterator[bytes]:
    """Yield a line of the log as people read it, without its line end: the rank in front where a tag names one.

    A tag may stand in mid-line: of the same rank, its text continues (a progress bar); of another, a new line begins.
    """
    pieces = _TAG.split(line)
    if len(pieces) == 1:
        yield b"[poprun] " + line if _OWN.match(line) else line
        return
    if pieces[0]:
        yield from shown(pieces[0])
    last: bytes | None = None
    line = b""
    for rank, text in zip(pieces[1::2], pieces[2::2], strict=True):
        if rank != last and last is not None:
            yield line
        line = line + text if rank == last else b"[%s] %s" % (rank, text)
        last = rank
    yield line
