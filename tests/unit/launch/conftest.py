"""Time for the tests of what watches ranks."""

from __future__ import annotations

import pytest

from tests.support.clock import Clock
from trainjob.launch.reading import recording
from trainjob.launch.witness import quiet


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    for module in (quiet, recording):
        monkeypatch.setattr(module, "clock", clock)
    return clock
