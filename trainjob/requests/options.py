"""A caller's options for a job, before any of them is read: the command line's flags, or a Python call's arguments.

A module of its own, because `--help` loads it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple


class JobOptions(NamedTuple):
    """A cluster's name or path, a job file, and settings that override it. `values` has only those that were given.

    Without a cluster, `kinds.choice` chooses one.
    """

    cluster: str | None
    file: Path | None
    values: Mapping[str, Any]
    project: Path | None = None
    untracked: bool = False
    # The job that holds the nodes, or "none". None: the job that this process is in, if any.
    inside: str | None = "none"

    def on_this_machine(self) -> JobOptions:
        """Return the options with this machine as their cluster, if none is given: for what trains here anyway."""
        return self._replace(cluster=self.cluster or "local")

    @property
    def words(self) -> tuple[str, ...]:
        """The user's own command, which stands after --; empty without one."""
        return tuple(self.values.get("command", ()))
