"""Leaves out of followed output what is told elsewhere: by another rank, or by whoever sums up the failure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from trainjob.cluster.slurm_text import ranges
from trainjob.contract.paths import RunPaths
from trainjob.records import causes, failure

_OF_RANK = re.compile(rb"\[(\d+)\] (?:%b)?(.*\n)" % failure.RANK_OF_TORCH.encode())
_TRACEBACK = b"Traceback (most recent call last):\n"
# What exceeds these is shown as it comes: a script may log tracebacks without end, or one without its last line.
_MOST_LINES, _MOST_TRACEBACKS = 2000, 1000
_BETWEEN_TRACEBACKS = (
    b"\n",
    b"During handling of the above exception, another exception occurred:\n",
    b"The above exception was the direct cause of the following exception:\n",
)
_FAILED = re.compile(rb"trainjob: rank \d+ failed with exit code ")
# srun ends the other ranks, and says so of each node.
_AFTERMATH = re.compile(
    rb"srun: error: .*: (Exited with exit code|Terminated|Killed)"
    rb"|srun: (launch/slurm: _step_signal: )?(Terminating StepId=|Force Terminated StepId=|Job step aborted)"
    rb"|slurmstepd.*: error: \*\*\* STEP .* CANCELLED AT "
)


class ToldOnce:
    """Takes the output of all ranks, the rank in front of each line, and yields what has not been told.

    A traceback is that of the first rank that prints it. What the job script prints of the first failure waits: the
    summary tells it, unless another attempt follows. Lines in which `noise` is found are left out.
    """

    def __init__(self, paths: RunPaths, noise: re.Pattern[bytes] | None = None) -> None:
        self._paths = paths
        self._noise = noise
        self._first: dict[bytes, int] = {}  # a traceback, and the rank that printed it first
        self._same: dict[int, set[int]] = {}  # that rank, and those that printed the same
        self._begun: dict[int, list[bytes]] = {}  # of a rank, the lines of a traceback that has no end yet
        self._skipping: set[int] = set()  # the ranks whose last traceback was left out
        self._held: list[bytes] = []

    def new(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        """Yield what is left of these pieces."""
        for piece in pieces:
            # One piece, because whoever writes it flushes it.
            if text := b"".join(part for line in piece.splitlines(keepends=True) for part in self._of_line(line)):
                yield text

    def finish(self) -> Iterator[bytes]:
        """Yield what was held back and the recorded failure does not tell, and which ranks ended as another did."""
        for begun in self._begun.values():
            yield from begun
        failed = failure.read(self._paths)
        if failed is None:
            yield from self._held
        else:
            cause = f"trainjob: {causes.of_failure(failed)}\n".encode()
            told = (_FAILED.match, _AFTERMATH.match, cause.__eq__)
            yield from (line for line in self._held if not any(is_it(line) for is_it in told))
        for first, same in self._same.items():
            who = f"rank{'s' * (len(same) > 1)} {ranges(sorted(same))}"
            yield f"{who} printed the same traceback as rank {first}\n".encode()

    def _of_line(self, line: bytes) -> Iterator[bytes]:
        if self._noise is not None and self._noise.search(line):
            return
        match = _OF_RANK.match(line)
        if match is None:
            yield from self._of_script(line)
            return
        rank, text = int(match[1]), match[2]
        begun = self._begun.get(rank)
        if text == _TRACEBACK:
            yield from begun or ()
            self._begun[rank] = [line]
        elif begun is not None:
            begun.append(line)
            if len(begun) > _MOST_LINES:
                yield from self._begun.pop(rank)
            elif not text.startswith(b" "):  # the exception
                yield from self._of_traceback(rank, self._begun.pop(rank))
        elif rank not in self._skipping or text not in _BETWEEN_TRACEBACKS:
            self._skipping.discard(rank)
            yield line

    def _of_traceback(self, rank: int, lines: list[bytes]) -> Iterator[bytes]:
        text = b"".join(match[2] for match in map(_OF_RANK.match, lines) if match is not None)
        first = self._first.get(text, rank)
        if first == rank:
            if len(self._first) < _MOST_TRACEBACKS:
                self._first[text] = rank
            self._skipping.discard(rank)
            yield from lines
        else:
            self._skipping.add(rank)
            self._same.setdefault(first, set()).add(rank)

    def _of_script(self, line: bytes) -> Iterator[bytes]:
        if _FAILED.match(line) or (self._held and (line.startswith(b"trainjob: ") or _AFTERMATH.match(line))):
            self._held.append(line)
            return
        if line.startswith(failure.ATTEMPT_MARK):
            yield from self._held
            self._held = []
            self._first.clear()  # each attempt shows its own
        yield line
