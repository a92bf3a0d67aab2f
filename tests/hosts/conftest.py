"""Fixtures of the tests that start real processes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from local_runs import Here


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Here]:
    """A user's machine in small; nothing that was started on it outlives the test."""
    made = Here(tmp_path)
    yield made
    made.end_everything()
