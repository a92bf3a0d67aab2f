"""Updates as the hook in the Python of rank 0 counts them, at `Optimizer.step` (launch/hooks/)."""

from __future__ import annotations

import os
import re
from typing import IO, Dict, List, NamedTuple, Optional, Tuple

from trainjob.contract.environment import COUNTS

_PLACE = 256  # bytes of a process, at its number
_EPOCHS_OF_BATCHES = 2  # loops


class Counted(NamedTuple):
    """The updates that one program has made. Times are in seconds since 1970."""

    updates: int
    first_at: float
    last_at: float
    began: Optional[int] = None  # updates that the optimizer's state had seen before
    per_pass: Optional[int] = None  # updates of a pass over its loader
    epochs: Optional[int] = None  # that its own variables state
    steps: Optional[int] = None  # the same, of all epochs
    cut: Optional[int] = None  # updates after which its variables may end it
    loops: int = 0  # around an update: 0: those of a library; more than two: of something else, or one may end early
    # Bytes of its log between which it made no update and may have evaluated: the newest, the last perhaps without an
    # end (-1), and how many were before. A beginning is -1 where it does not print into its log alone.
    asides: Tuple[Tuple[int, int], ...] = ()
    asides_before: int = 0

    def total(self, epochs: Optional[int]) -> Optional[int]:
        """Return the updates of so many epochs; None if that is unknown, or its variables say something else."""
        is_known = self.loops == _EPOCHS_OF_BATCHES and self.epochs in (None, epochs)
        total = self.per_pass * epochs if self.per_pass and epochs and is_known else None
        return None if total is None or (self.cut is not None and self.cut < total) else total

    def is_of_all(self, total: int, in_all: Optional[int]) -> bool:
        """Return whether a total that is printed beside a count of updates is of the whole run, not of an epoch.

        `in_all` are the updates that it has made in the end.
        """
        if self.cut is not None and self.cut < total:
            return False
        may_be_of_pass = self.per_pass in (None, total) or (
            self.loops not in (0, _EPOCHS_OF_BATCHES) and total != in_all
        )
        return total == self.steps or self.loops == 1 or not may_be_of_pass

    def has_made(self, updates: int) -> bool:
        """Return whether so many are all that its variables state."""
        return updates in (self.steps, (self.per_pass or 0) * (self.epochs or 0))

    @property
    def evaluates(self) -> bool:
        """Return whether it may have evaluated since its first update."""
        return self.asides_before > 0 or any(begin != 0 for begin, _ in self.asides)

    def may_be_of_evaluation(self, place: Optional[Tuple[int, int]], asides_seen: int) -> Optional[bool]:
        """Return whether a part of what has a place in its log may be of an evaluation, if so many were known before.

        A bar that ends no line has what is printed next on its own. None if nothing tells, because it is printed
        elsewhere.
        """
        if place is None or any(begin < 0 for begin, _ in self.asides):
            return None
        missed = self.asides_before > asides_seen and place[0] < self.asides[0][0]
        return missed or any(begin < place[1] and (end < 0 or place[0] < end) for begin, end in self.asides)


class Look(NamedTuple):
    """The known updates. `is_awaited`: torch is loaded, and no update has been made; by an optimizer that is there."""

    counted: Optional[Counted] = None
    is_awaited: bool = False
    has_optimizer: bool = False


class Counts:
    """The file into which the Python processes of rank 0 count. Without one, progress is what is printed."""

    def __init__(self, file: Optional[IO[bytes]]) -> None:
        self._file = file

    def environment(self) -> Dict[str, str]:
        """Return the variable that ranks need."""
        return {} if self._file is None else {COUNTS: "/proc/%d/fd/%d" % (os.getpid(), self._file.fileno())}

    def look(self, noted: str) -> Look:
        """Return what has been counted, given what processes have noted of themselves."""
        if self._file is None or "torch " not in noted:
            return Look()
        found: List[Counted] = []
        counting = dict.fromkeys(re.findall(r"(?m)^counts (\d+)$", noted))
        for pid in counting:
            line = os.pread(self._file.fileno(), _PLACE, int(pid) * _PLACE).decode("ascii", "replace").strip("\0 ")
            counted, why_not = _parse(line)
            if why_not:
                return Look()
            if counted is not None:
                found.append(counted)
        # A program that trains without torch's optimizers may still load torch.
        is_awaited = not found and not re.search(r"(?m)^other \d+$", noted)
        together = _together(sorted(found, key=lambda one: one.first_at)) if found else None
        return Look(together, is_awaited, is_awaited and bool(counting))


def _parse(line: str) -> Tuple[Optional[Counted], str]:
    """Return what a process has counted, None before its first update, and why it counts no further."""
    fields = line.split()
    if len(fields) < 10:
        return None, ""
    began, per_pass, epochs, steps, cut = (None if one == "-1" else int(one) for one in fields[3:8])
    updates, first_at, last_at = int(fields[0]), float(fields[1]), float(fields[2])
    before, _, newest = fields[9].partition(":")
    asides = tuple((int(begin), int(end)) for begin, _, end in (one.partition("_") for one in newest.split(",") if one))
    counts = (began, per_pass, epochs, steps, cut, int(fields[8]))
    counted = Counted(updates, first_at, last_at, *counts, asides, int(before))
    return counted if counted.updates else None, " ".join(fields[10:])


def _together(found: List[Counted]) -> Counted:
    """Return the count of several processes: one after the other they add up, side by side they are ranks."""
    together = found[0]
    for one in found[1:]:
        if one.first_at > together.last_at:
            updates = together.updates + one.updates
            together = Counted(updates, together.first_at, one.last_at, together.began)
            together = together._replace(asides=one.asides, asides_before=one.asides_before)
        else:
            together = max(together, one, key=lambda counted: counted.updates)
    return together
