"""Interpreters that are checked import a stub in torch's place: what is said of them does not depend on it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import tests.support

STUB = Path(tests.support.__file__).with_name("stub_torch")


@pytest.fixture(autouse=True)
def stub_torch(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.node.get_closest_marker("imports_torch") is None:
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(STUB), *filter(None, [os.environ.get("PYTHONPATH")])]))
