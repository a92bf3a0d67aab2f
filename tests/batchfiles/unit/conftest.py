"""Tests of values start no process, as in tests/unit."""

from __future__ import annotations

from tests.support.no_processes import no_process_is_started

__all__ = ["no_process_is_started"]
