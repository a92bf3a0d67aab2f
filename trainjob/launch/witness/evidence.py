"""Evidence of a rank's end that only this host has: its memory, the limit on it, and the kernel's messages."""

from __future__ import annotations

import contextlib
import os
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Iterator, List, Optional

from trainjob.launch.cgroups import TOP, own_folders, text

if TYPE_CHECKING:
    from trainjob.records.failure import Memory

_KERNEL_LOG = "/dev/kmsg"
_RECORD_BYTES = 8192
_MOST_MESSAGES = 8
_TELLING = r"NVRM: Xid|[Oo]ut of memory|oom-kill|segfault at|invalid opcode|fallen off the bus|I/O error"

# Uncorrectable memory errors (48, 64, 94, 95), NVLink (74), a GPU that fell off the bus (79), its firmware (119, 120).
_BROKEN_GPU = r"NVRM: Xid \(.*?\): (48|64|74|79|94|95|119|120)\b"


class Witness:
    """Notes the state of memory when the ranks start, and reports what has happened since."""

    def __init__(self, cgroups: Path = TOP) -> None:
        self._group = _limited_group(cgroups)
        self._kills = self._kills_so_far()
        self._started_us = time.monotonic() * 1e6

    def memory(self, peak_rss_bytes: int) -> Memory:
        """Return the memory of the limited group that ranks run in; without one, the rank's and the machine's."""
        from trainjob.records.failure import Memory

        used, most = (self._group.peak if self._group else None) or peak_rss_bytes, self.limit
        return Memory(min(max(used, peak_rss_bytes), most), most, max(0, self._kills_so_far() - self._kills))

    @property
    def limit(self) -> int:
        """The most memory in bytes that ranks may use here: of their limited group, else the machine's."""
        return min((self._group.limit if self._group else None) or _machine_bytes(), _machine_bytes())

    def kernel_messages(self) -> List[str]:
        """Return the kernel's messages since the start that may explain a rank's end; none if they can't be read."""
        with contextlib.suppress(OSError):
            return list(_messages_since(self._started_us))[-_MOST_MESSAGES:]
        return []

    def _kills_so_far(self) -> int:
        """Return the processes killed for memory, in the limited group if there is one, else on the machine."""
        in_group = self._group.kills if self._group else None
        return in_group if in_group is not None else _number(_word_of(Path("/proc/vmstat"), "oom_kill")) or 0


class _Group:
    """A control group for memory: of version 2, or of version 1 with its other file names."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @property
    def limit(self) -> Optional[int]:
        return _number(text(self._folder / "memory.max") or text(self._folder / "memory.limit_in_bytes"))

    @property
    def peak(self) -> Optional[int]:
        names = ("memory.peak", "memory.max_usage_in_bytes", "memory.current")
        return next((value for value in (_number(text(self._folder / name)) for name in names) if value), None)

    @property
    def kills(self) -> Optional[int]:
        files = (self._folder / "memory.events", self._folder / "memory.oom_control")
        return next(
            (value for value in (_number(_word_of(file, "oom_kill")) for file in files) if value is not None), None
        )


def hardware_errors(seconds: float) -> List[str]:
    """Return the kernel's reports of broken GPUs within the last `seconds`; none if its log can't be read.

    Of NVIDIA's Xid errors only those that a program can't cause.
    """
    with contextlib.suppress(OSError):
        messages = _messages_since((time.monotonic() - seconds) * 1e6)
        return [message for message in messages if re.search(_BROKEN_GPU, message)]
    return []


def _limited_group(cgroups: Path) -> Optional[_Group]:
    """Return the innermost control group of this process that limits memory; None if none does."""
    for folder in own_folders("memory", cgroups):
        group = _Group(folder)
        if group.limit is not None and group.limit < _machine_bytes():
            return group
    return None


def _messages_since(started_us: float) -> Iterator[str]:
    descriptor = os.open(_KERNEL_LOG, os.O_RDONLY | os.O_NONBLOCK)
    try:
        while True:
            try:
                record = os.read(descriptor, _RECORD_BYTES).decode(errors="replace")
            except BrokenPipeError:  # the ring was overwritten meanwhile: the next record can be read
                continue
            head, _, message = record.partition(";")
            first_line = message.split("\n", 1)[0]
            if float(head.split(",")[2]) >= started_us and re.search(_TELLING, first_line):
                yield first_line
    except (BlockingIOError, IndexError, ValueError):
        return
    finally:
        os.close(descriptor)


def _machine_bytes() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _word_of(file: Path, name: str) -> Optional[str]:
    lines = (line.split() for line in (text(file) or "").splitlines())
    return next((words[1] for words in lines if len(words) == 2 and words[0] == name), None)


def _number(text: Optional[str]) -> Optional[int]:
    return int(text) if text is not None and text.strip().isdigit() else None
