"""Holds tests of values to it: they start no process."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from multiprocessing.process import BaseProcess
from typing import Any, NoReturn

import pytest

_STARTERS: tuple[tuple[Any, str], ...] = (
    *((os, name) for name in dir(os) if name.startswith(("exec", "spawn", "posix_spawn", "fork")) or name == "system"),
    (subprocess.Popen, "__init__"),
    (BaseProcess, "start"),
)


@pytest.fixture(autouse=True)
def no_process_is_started(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
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
