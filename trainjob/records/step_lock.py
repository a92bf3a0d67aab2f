"""A lock that one process holds over all hosts of a shared file system, where flock may lock nothing.

It is a folder of numbered files. The process that creates the next number holds the lock: O_EXCL is atomic on NFS and
Lustre. The number fences: a holder that finds a higher one has lost the lock. Its file says who holds it or how it was
released, and the holder touches it. A waiter that sees no touch for longer than file systems cache attributes takes the
next number. It compares what it sees with what it saw, never the clocks of two hosts.
"""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path
from typing import Callable, NamedTuple, Optional, Tuple

from trainjob.contract import clock
from trainjob.records.files import DamagedError, read_small, write_atomically

POLL_S = 0.5
BEAT_S = 5.0
# NFS clients keep attributes for up to 60 s.
LOST_AFTER_S = 120.0
_HELD = "held"
# Old numbers are kept for those who list the folder late, and would take one of them for the next.
_KEPT = 100


class LostError(Exception):
    """Another process holds the lock now."""


class Owner(NamedTuple):
    """One start of a run on one host: of the same run, a later attempt takes the lock over at once."""

    run: str
    attempt: int
    host: str


class Lock:
    """The lock in `folder`. `pause` waits for a moment, and raises what ends the wait."""

    def __init__(self, folder: Path, owner: Owner, pause: Callable[[float], None]) -> None:
        self._folder = folder
        self._owner = owner
        self._pause = pause
        self._number = 0
        self._beaten_at = 0.0

    def acquire(self, is_settled: Callable[[str], bool], waits_for: Callable[[str], None]) -> Optional[str]:
        """Return None once this process holds the lock, or the word with which the last holder released it.

        The latter where that word leaves nothing to do. `waits_for` is told once who holds it.
        """
        seen: Tuple[object, ...] = ()
        since, has_reported = clock.monotonic(), False
        while True:
            self._folder.mkdir(parents=True, exist_ok=True)  # each time: a user may remove it
            number, word, touched = self.newest()
            if number == 0 or (word and not word.startswith(_HELD)):
                if word and is_settled(word):
                    return word
                if self._create(number + 1):
                    return None
                continue  # another process was quicker
            if (number, touched) != seen:
                seen, since = (number, touched), clock.monotonic()
            is_lost = self._is_of_an_older_attempt(word) or clock.monotonic() - since > LOST_AFTER_S
            if is_lost and self._create(number + 1):
                return None
            if not has_reported:
                waits_for(word.partition(" ")[2])
                has_reported = True
            self._pause(POLL_S)

    def beat(self) -> None:
        """Show that the holder lives. Raises LostError."""
        if clock.monotonic() - self._beaten_at < BEAT_S:
            return
        try:
            if self._file(self._number + 1).exists():
                raise LostError("another process took over %s" % self._folder)
            os.utime(str(self._file(self._number)))
        except FileNotFoundError:
            raise LostError("another process removed %s" % self._folder) from None
        except OSError:  # the next one may succeed; waiters are patient
            pass
        self._beaten_at = clock.monotonic()

    def release(self, word: str) -> None:
        """Give the lock back; `word` says how what it was held for ended.

        Where that can't be written, waiters take it over once it shows no sign of life.
        """
        with contextlib.suppress(OSError):
            write_atomically(self._file(self._number), word + "\n")

    def _file(self, number: int) -> Path:
        return self._folder / ("%06d" % number)

    def newest(self) -> Tuple[int, str, object]:
        """Return the highest number, what its file says, and what changes when it is touched."""
        try:
            names = [name for name in os.listdir(str(self._folder)) if name.isascii() and name.isdigit()]
        except FileNotFoundError:
            names = []
        number = max(map(int, names), default=0)
        word, touched = "", None
        if number:
            # Opened before its attributes are read: NFS clients ask the server then.
            with contextlib.suppress(OSError, DamagedError):
                word = read_small(self._file(number)).decode("utf-8", "replace").strip()
                touched = self._file(number).stat().st_mtime_ns
        return number, word, touched

    def _create(self, number: int) -> bool:
        try:
            descriptor = os.open(str(self._file(number)), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
        except (FileExistsError, FileNotFoundError):
            return False
        with os.fdopen(descriptor, "w") as stream:
            stream.write("%s %s %d %s\n" % (_HELD, *self._owner))
        self._number, self._beaten_at = number, clock.monotonic()
        with contextlib.suppress(OSError):
            self._file(number - _KEPT).unlink()
        return True

    def _is_of_an_older_attempt(self, word: str) -> bool:
        _, *words = word.split(" ")
        return (
            len(words) == 3
            and words[0] == self._owner.run
            and re.fullmatch("[0-9]{1,9}", words[1]) is not None
            and int(words[1]) < self._owner.attempt
        )
