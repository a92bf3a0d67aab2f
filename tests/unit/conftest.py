"""Tests of values start no process. One that has to lies in tests/scripts, or in tests/training where ranks train."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from typing import Any

import pytest

from tests.support.no_processes import no_process_is_started

__all__ = ["no_process_is_started"]


class _WithoutTorch:
    """Skips what imports torch where it is not installed, as on a Python that has no build of it yet."""

    def find_spec(self, name: str, *_: object) -> None:
        if name == "torch":
            pytest.skip("torch is not installed in this Python", allow_module_level=True)


if importlib.util.find_spec("torch") is None:
    sys.meta_path.insert(0, _WithoutTorch())


@pytest.fixture(scope="session")
def matplotlib() -> Any:
    """Return matplotlib, which has listed the machine's fonts: for that it starts a program, once on a new machine."""
    pytest.importorskip("matplotlib.font_manager", reason="matplotlib is not installed in this Python")
    return importlib.import_module("matplotlib")
