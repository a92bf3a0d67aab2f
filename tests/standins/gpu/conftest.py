"""Stand-in GPUs are compiled once for the tests' torch.

That takes minutes on a busy machine, so that the tests' time limits count the tests alone (func_only).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from trainjob.rehearse import gpus


@pytest.fixture(scope="session", autouse=True)
def _compiled(needs: Callable[[str], Path]) -> None:
    needs("g++")
    gpus.make_ready(sys.executable)
