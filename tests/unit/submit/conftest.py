"""Engines that only write down how they were called."""

from __future__ import annotations

from pathlib import Path

import pytest
from recording_engines import Engines, on_path


@pytest.fixture
def engines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Engines:
    return on_path(tmp_path / "engines", monkeypatch)
