"""Durations in Slurm's formats."""

from __future__ import annotations

_UNLIMITED = ("UNLIMITED", "INFINITE")


def seconds(time: str) -> int | None:
    """Return the seconds of a duration in one of Slurm's formats; None if it is unlimited. The text must be valid.

    The formats: minutes, minutes:seconds, hours:minutes:seconds, days-hours, days-hours:minutes[:seconds].
    """
    if time in _UNLIMITED:
        return None
    days, dash, rest = time.rpartition("-")
    parts = [int(part) for part in rest.split(":")]
    if dash:
        hours, minutes, left = (*parts, 0, 0)[:3]
    elif len(parts) == 3:
        hours, minutes, left = parts
    else:
        hours, (minutes, left) = 0, (*parts, 0)[:2]
    return ((int(days or 0) * 24 + hours) * 60 + minutes) * 60 + left


def written(total_s: int) -> str:
    """Return seconds as hours:minutes:seconds, which every release of Slurm accepts: "30:00:00"."""
    return f"{total_s // 3600:02}:{total_s % 3600 // 60:02}:{total_s % 60:02}"
