"""Curves of lines that a test writes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from trainjob.observe.report.series import Series
from trainjob.records.metrics import parse


def series(lines: Iterable[Mapping[str, Any]]) -> Series:
    """Return the curves of the lines of a metrics.jsonl."""
    found = Series()
    for line in lines:
        found.add(parse(line))
    return found
