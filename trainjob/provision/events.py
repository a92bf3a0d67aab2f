"""What the playbooks say as they run, read from one JSON object a line."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

STATUSES = ("ok", "changed", "skipped", "failed", "unreachable")


@dataclass(frozen=True)
class TaskBegun:
    """A task begins on every host it is for."""

    role: str
    task: str


@dataclass(frozen=True)
class HostDone:
    """A task has ended on one host."""

    host: str
    role: str
    task: str
    status: str
    seconds: float
    why: str = ""
    diff: str = ""

    @property
    def is_bad(self) -> bool:
        """Whether the host takes part no longer."""
        return self.status in ("failed", "unreachable")


Event = TaskBegun | HostDone


def parse(line: str) -> Event | None:
    """Return the event in `line`; None for one that nobody waits for, and for what is no event."""
    try:
        fields = json.loads(line)
    except ValueError:
        return None
    match fields:
        case {"event": "task", "role": str(role), "task": str(task)}:
            return TaskBegun(role, task)
        case {"event": "host", "status": str(status)} if status in STATUSES:
            return _host_done(fields)
    return None


def _host_done(fields: dict[str, Any]) -> HostDone:
    return HostDone(
        host=fields["host"],
        role=fields["role"],
        task=fields["task"],
        status=fields["status"],
        seconds=float(fields["seconds"]),
        why=fields.get("why", ""),
        diff=fields.get("diff", ""),
    )
