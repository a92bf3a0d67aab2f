"""Attempts: one start of a run each. A newer attempt fences an older one."""

from __future__ import annotations

from trainjob.contract.paths import RunPaths
from trainjob.records.files import read_number


def current(paths: RunPaths) -> int:
    """Return the number of the newest attempt; 0 before the first."""
    return read_number(paths.attempt) or 0


def is_stale(paths: RunPaths, attempt: int) -> bool:
    """Return whether a newer attempt has begun, so that `attempt` must stop and write nothing."""
    return current(paths) > attempt
