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


@pytest.fixture(scope="module")
def refused_starts() -> Iterator[list[str]]:
    """Refuse what starts a process in a whole module: to do it for each of thousands of tests takes seconds."""
    started: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        for owner, name in _STARTERS:
            patch.setattr(owner, name, _refusal(f"{owner.__name__}.{name}", started))
        yield started


@pytest.fixture(autouse=True)
def no_process_is_started(refused_starts: list[str]) -> Iterator[None]:
    refused_starts.clear()
    yield
    # A thread's failure does not end the test, and product code may catch what is raised.
    assert not refused_starts, f"tests/unit starts no processes, and {refused_starts[0]} was called"


def _refusal(call: str, started: list[str]) -> Callable[..., NoReturn]:
    def refuse(*words: object, **_: object) -> NoReturn:
        started.append(f"{call}{words[1:] or words}")
        pytest.fail(f"tests/unit starts no processes, and {started[-1]} was called", pytrace=True)

    return refuse
