"""Tests of values start no process. One that has to lies in tests/scripts, or in tests/training where ranks train."""

from __future__ import annotations

import importlib
import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from multiprocessing.process import BaseProcess
from typing import Any, NoReturn

import pytest


class _WithoutTorch:
    """Skips what imports torch where it is not installed, as on a Python that has no build of it yet."""

    def find_spec(self, name: str, *_: object) -> None:
        if name == "torch":
            pytest.skip("torch is not installed in this Python", allow_module_level=True)


if importlib.util.find_spec("torch") is None:
    sys.meta_path.insert(0, _WithoutTorch())

_STARTERS: tuple[tuple[Any, str], ...] = (
    *((os, name) for name in dir(os) if name.startswith(("exec", "spawn", "posix_spawn", "fork")) or name == "system"),
    (subprocess.Popen, "__init__"),
    (BaseProcess, "start"),
)


@pytest.fixture(scope="session")
def matplotlib() -> Any:
    """Return matplotlib, which has listed the machine's fonts: for that it starts a program, once on a new machine."""
    pytest.importorskip("matplotlib.font_manager", reason="matplotlib is not installed in this Python")
    return importlib.import_module("matplotlib")


@pytest.fixture(autouse=True)
def _no_process_is_started(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    started: list[str] = []
    for owner, name in _STARTERS:
        monkeypatch.setattr(owner, name, _refusal(f"{owner.__name__}.{name}", started))
    yield
    # A thread's failure does not end the test, and product code may catch what is raised.
    assert not started, f"tests/unit starts no processes, and {started[0]} was called"


def _refusal(call: str, started: list[str]) -> Callable[..., NoReturn]:
    def refuse(*words: object, **_: object) -> NoReturn:
        started.append(f"{call}{words[1:] or words}")
        pytest.fail(f"tests/unit starts no processes, and {started[-1]} was called", pytrace=True)

    return refuse
