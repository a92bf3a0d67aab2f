"""A job under a private Slurm: what the controller says of it, and the one loop that follows it to its end."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, TypeVar

from trainjob.contract import clock
from trainjob.rehearse.slurm.private import PrivateSlurm

Reason = TypeVar("Reason")
_FIELD = re.compile(r"(?:^|\s)([A-Za-z:/]+)=(\S*)")
_ACTIVE = ("PENDING", "CONFIGURING", "RUNNING", "COMPLETING", "SUSPENDED", "REQUEUED", "STOPPED", "SIGNALING")


def fields_of(text: str) -> list[dict[str, str]]:
    """Return the fields of each line that scontrol has printed."""
    return [dict(_FIELD.findall(line)) for line in text.splitlines()]


@dataclass
class FollowedJob:
    """A job, all elements of it if it is an array. `look` asks for its state anew."""

    poll_s: ClassVar[float] = 0.1

    slurm: PrivateSlurm
    id: str  # Slurm's; of an array, that of all elements
    rows: Sequence[Mapping[str, str]] = field(default=(), init=False)  # scontrol's fields, of each element

    def look(self) -> None:
        """Ask the controller. Raises CommandError."""
        shown = fields_of(self.slurm.run(["scontrol", "--oneliner", "show", "job"]).text)
        # Slurm forgets a job some minutes after its end.
        self.rows = [row for row in shown if row and self.is_followed(row)] or self.rows

    def is_followed(self, row: Mapping[str, str]) -> bool:
        """Return whether a job is this one, or an element or a component of it."""
        return self.id in (row.get("JobId"), row.get("ArrayJobId"), row.get("HetJobId"))

    def is_over(self) -> bool:
        """Return whether nothing of it waits or runs any more."""
        return bool(self.rows) and not any(row.get("JobState") in _ACTIVE for row in self.rows)

    def is_pending(self) -> bool:
        """Return whether all of it waits to be started."""
        return bool(self.rows) and all(row.get("JobState") == "PENDING" for row in self.rows)

    def nodes_named(self, listed: str) -> tuple[str, ...]:
        """Return the nodes of a list such as node[1-3], in order."""
        return tuple(self.slurm.run(["scontrol", "show", "hostnames", listed]).text.split()) if listed else ()

    def follow(self, until: Callable[[], Reason | None] = lambda: None) -> Reason | None:
        """Look at the job again and again. Return what `until` gives as a reason to leave it; None once it is over."""
        while True:
            self.look()
            if self.is_over():
                return None
            if (reason := until()) is not None:
                return reason
            clock.sleep(self.poll_s)
