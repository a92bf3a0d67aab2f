"""Evidence of a rank's end that only this host has: its memory, the limit on it, and the kernel's messages."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Iterator, List, Optional

from trainjob.contract import clock
from trainjob.launch.host import CGROUPS, own_folders, text

if TYPE_CHECKING:
    from trainjob.records.failure import MemoryUse

_KERNEL_LOG = "/dev/kmsg"
_RECORD_BYTES = 8192
_MOST_MESSAGES = 8
_TELLING = r"NVRM: Xid|[Oo]ut of memory|oom-kill|segfault at|invalid opcode|fallen off the bus|I/O error"

# Uncorrectable memory errors (48, 64, 94, 95), NVLink (74), a GPU that fell off the bus (79), its firmware (119, 120).
BROKEN_GPU = r"NVRM: Xid \(.*?\): (48|64|74|79|94|95|119|120)\b"


class Witness:
    """Notes the state of memory when the ranks start, and reports what has happened since."""

    def __init__(self, cgroups: Path = CGROUPS) -> None:
        # The innermost control group of this process that limits memory.
        limited = (folder for folder in own_folders("memory", cgroups) if _limit(folder) < _machine_bytes())
        self._group: Optional[Path] = next(limited, None)
        self._kills = self._kills_so_far()
        self._started_us = clock.monotonic() * 1e6

    def memory(self, peak_rss_bytes: int) -> MemoryUse:
        """Return the memory of the limited group that ranks run in; without one, the rank's and the machine's."""
        from trainjob.records.failure import MemoryUse

        peaks = ("memory.peak", "memory.max_usage_in_bytes", "memory.current")  # of versions 2 and 1 of control groups
        values = [_number(text(self._group / name)) for name in peaks] if self._group else []
        used, most = next(filter(None, values), peak_rss_bytes), self.limit
        return MemoryUse(min(max(used, peak_rss_bytes), most), most, max(0, self._kills_so_far() - self._kills))

    @property
    def limit(self) -> int:
        """The most memory in bytes that ranks may use here: of their limited group, else the machine's."""
        return min(_limit(self._group) if self._group else _machine_bytes(), _machine_bytes())

    def kernel_messages(self) -> List[str]:
        """Return the kernel's messages since the start that may explain a rank's end; none if they can't be read."""
        with contextlib.suppress(OSError):
            return list(_messages_since(self._started_us))[-_MOST_MESSAGES:]
        return []

    def _kills_so_far(self) -> int:
        """Return the processes killed for memory, in the limited group if there is one, else on the machine."""
        files = [self._group / name for name in ("memory.events", "memory.oom_control")] if self._group else []
        for file in (*files, Path("/proc/vmstat")):
            for line in text(file).splitlines():
                if line.startswith("oom_kill "):
                    return int(line.split()[1])
        return 0


def hardware_errors(seconds: float) -> List[str]:
    """Return the kernel's reports of broken GPUs within the last `seconds`; none if its log can't be read.

    Of NVIDIA's Xid errors only those that a program can't cause.
    """
    with contextlib.suppress(OSError):
        messages = _messages_since((clock.monotonic() - seconds) * 1e6)
        return [message for message in messages if re.search(BROKEN_GPU, message)]
    return []


def _limit(group: Path) -> int:
    """Return the limit of a control group on memory, of version 2 or 1; the machine's memory if it has none."""
    return _number(text(group / "memory.max") or text(group / "memory.limit_in_bytes")) or _machine_bytes()


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


def _number(text: str) -> Optional[int]:
    return int(text) if text.strip().isdigit() else None
