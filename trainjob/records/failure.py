"""failure.json: which rank failed first, how, the end of what it printed, and what only its host could see.

Together with the job script's log and what the disk refused it is the evidence that `causes` draws on.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import signal
from dataclasses import dataclass, field
from pathlib import Path
from typing import List, Optional, Sequence

from trainjob.contract.paths import RunPaths
from trainjob.records import attempts, progress, typed
from trainjob.records.files import DamagedError, open_regular, remove_if_there, write_json

TAIL_LINES = 40
_TAIL_BYTES = 64 * 1024
ATTEMPT_MARK = b"--- attempt "
# torch puts it before each line of a traceback, once a rank has joined a group.
RANK_OF_TORCH = r"\[rank\d+\]: ?"


@dataclass(frozen=True)
class MemoryUse:
    """Memory when a rank ended: what was used at most, the limit, and how many processes the kernel killed for it."""

    used_bytes: int
    limit_bytes: int
    kills: int = 0

    @property
    def share(self) -> float:
        """The share of the limit that was used."""
        return self.used_bytes / self.limit_bytes if self.limit_bytes else 0.0

    def __str__(self) -> str:
        """Return it for a message: "3.9 of 4.0 GB"."""
        return "%.1f of %.1f GB" % (self.used_bytes / 1e9, self.limit_bytes / 1e9)


@dataclass(frozen=True)
class Failure:
    """The first failing rank of an attempt. `exit_code` is the shell's: 128 + n for signal n.

    `signal` is the one from outside that ended it, if any did; `kernel` holds the kernel's messages of that time.
    `script_has_ended`: the signal came when the rank's script had ended without an exception. `step` is one that failed
    before ranks started, and `timeout_s` what it was given where it did not end in that time.
    """

    attempt: int
    rank: int
    host: str
    exit_code: int
    command: List[str]
    tail: List[str]
    signal: Optional[int] = None
    memory: Optional[MemoryUse] = None
    kernel: List[str] = field(default_factory=list)
    script_has_ended: bool = False
    step: str = ""
    timeout_s: Optional[float] = None
    why: str = ""  # of a server, named by `step`: why its end is a failure

    @property
    def who(self) -> str:
        """What failed: "rank 1", or the step."""
        return self.step or "rank %d" % self.rank

    @property
    def how(self) -> str:
        """How it failed, as a sentence: "rank 1 on n7 failed first, with exit code 137 (SIGKILL)"."""
        code = str(self.exit_code)
        with contextlib.suppress(ValueError):
            code += " (%s)" % signal.Signals(self.exit_code - 128).name
        return "%s on %s failed first, with exit code %s" % (self.who, self.host, code)

    @property
    def last_line(self) -> str:
        """The last line that it printed, without the rank that torch puts in front; "" if it printed nothing."""
        return without_rank(next((line for line in reversed(self.tail) if line.strip()), "")).strip()


def without_rank(line: str) -> str:
    """Return a line of a rank's output without the rank that torch puts in front."""
    return re.sub(r"\A" + RANK_OF_TORCH, "", line)


def record_first(paths: RunPaths, failure: Failure) -> bool:
    """Write failure.json unless another rank of its attempt was first; return whether this one was.

    A rank of an older attempt, which may end after the newer one has begun, is never the first.
    """
    if attempts.is_stale(paths, failure.attempt):
        return False
    mine = paths.folder / (".failure-%d-%d" % (failure.rank, os.getpid()))
    write_json(mine, dataclasses.asdict(failure))
    try:
        # A link fails where the name exists: of several launchers only the first gets through.
        os.link(str(mine), str(paths.failure))
    except FileExistsError:
        before = read(paths)
        if before is None or before.attempt >= failure.attempt:
            return False
        os.replace(str(mine), str(paths.failure))
    finally:
        remove_if_there(mine)
    return True


def load(paths: RunPaths) -> Optional[Failure]:
    """Return what failure.json says; None when no rank has failed in this attempt. Raises DamagedError."""
    return typed.load(Failure, paths.failure)


def read(paths: RunPaths) -> Optional[Failure]:
    """Return what failure.json says; None when no rank has failed in this attempt, or the file is damaged."""
    return typed.read(Failure, paths.failure)


def tail_of_attempt(log: Path) -> List[str]:
    """Return the last lines of `log` that belong to its newest attempt; none where it can't be read."""
    try:
        with open_regular(log) as stream:
            size = stream.seek(0, os.SEEK_END)
            stream.seek(max(0, size - _TAIL_BYTES))
            lines = stream.read().split(b"\n")
    except (OSError, DamagedError):
        return []
    starts = [number for number, line in enumerate(lines) if line.startswith(ATTEMPT_MARK)]
    mine = lines[starts[-1] + 1 :] if starts else lines
    return [line.decode(errors="replace") for line in mine if line.strip()][-TAIL_LINES:]


# A shell's exit codes for signals: 128 + n.
_BY_SIGNAL = range(129, 193)


@dataclass(frozen=True)
class Evidence:
    """The evidence of a run's end."""

    exit_code: Optional[int] = None
    signal: Optional[int] = None  # the signal from outside that ended the rank, where the launcher saw one
    rank: Optional[int] = None
    host: str = ""
    lines: Sequence[str] = field(default_factory=tuple)  # the last lines printed
    kernel: Sequence[str] = field(default_factory=tuple)  # the kernel's messages about it
    memory: Optional[MemoryUse] = None
    script_has_ended: bool = False  # without an exception, before the rank's process was ended
    step: str = ""  # that ran before ranks
    timeout_s: Optional[float] = None  # in which the step did not end
    why: str = ""  # the end of a server is a failure

    @property
    def ended_by(self) -> Optional[int]:
        """The signal that ended the rank; exit code 128 + n is a shell's way of saying it."""
        if self.signal is not None:
            return self.signal
        code = self.exit_code or 0
        return code - 128 if code in _BY_SIGNAL else None

    @property
    def who(self) -> str:
        """The rank as a subject: "rank 1 on host n7"."""
        if self.rank is None:
            return "the job"
        who = self.step or "rank %d" % self.rank
        return "%s on host %s" % (who, self.host) if self.host else who


def evidence_of_failure(failed: Failure, more_lines: Sequence[str] = ()) -> Evidence:
    """Return what the launcher recorded of a failure; `more_lines` were printed by others than the rank."""
    known = {one.name: getattr(failed, one.name) for one in dataclasses.fields(Evidence) if one.name != "lines"}
    return Evidence(**known, lines=[*more_lines, *failed.tail])


def evidence_of_run(paths: RunPaths, note: Optional[str] = None, printed: Optional[Sequence[str]] = None) -> Evidence:
    """Return what a run's folder says of its end; `note` is what its scheduler says.

    `printed` is the tail of its job script's log, from a caller that has read it.
    """
    failed, printed = read(paths), tail_of_attempt(paths.scheduler_log) if printed is None else printed
    if failed is not None:
        return evidence_of_failure(failed, [line for line in printed if line.startswith(("slurmstepd", "srun"))])
    reported = [line for line in (note, progress.read(paths).trouble) if line is not None]
    return Evidence(exit_code=attempts.exit_code(paths), lines=[*reported, *printed])
