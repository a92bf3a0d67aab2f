"""Which lines of the code each unit test and each simulated history reaches.

A plugin of pytest, which writes to the file that REACHED in the environment names, and a command:

    python -m benchmarks.reached trace FILE SEED...     run histories, and write what each reaches
    python -m benchmarks.reached run SEED...            run histories; exit code 1 at the first that finds a fault
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from benchmarks.mutants import ROOT, place_of

# Name of a test, without its parameters, or seed of a history → seconds, and the lines by file.
Reached = dict[str, tuple[float, dict[str, list[int]]]]


class Tracer:
    """Notes each line of the places that runs while somebody's name stands in `who`."""

    def __init__(self) -> None:
        self.reached: dict[str, tuple[float, dict[str, set[int]]]] = {}
        self._lines: dict[str, set[int]] = {}
        self._files: dict[str, str] = {}

    @contextmanager
    def by(self, who: str) -> Iterator[None]:
        """Note what is reached in here as reached by `who`."""
        took_s, self._lines = self.reached.get(who, (0.0, {}))
        began = time.monotonic()
        threading.settrace(self._call)
        sys.settrace(self._call)
        try:
            yield
        finally:
            sys.settrace(None)
            threading.settrace(None)
            self.reached[who] = took_s + time.monotonic() - began, self._lines

    def _call(self, frame: Any, event: str, _: object) -> Callable[..., Any] | None:
        path = frame.f_code.co_filename
        if (name := self._files.get(path)) is None:
            file = os.path.relpath(path, ROOT)
            name = self._files[path] = file if place_of(file) else ""
        if not name:
            return None
        lines = self._lines.setdefault(name, set())
        lines.add(frame.f_lineno)

        def line(frame: Any, event: str, _: object) -> Callable[..., Any]:
            lines.add(frame.f_lineno)
            return line

        return line

    def write(self, path: Path) -> None:
        """Write it all as JSON."""
        every = {
            who: (took_s, {file: sorted(some) for file, some in lines.items()})
            for who, (took_s, lines) in self.reached.items()
        }
        path.write_text(json.dumps(every))


_tracer = Tracer()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Trace a test with its fixtures."""
    with _tracer.by(item.nodeid.partition("[")[0]):
        yield


def pytest_sessionfinish() -> None:
    """Write the file that the environment names."""
    _tracer.write(Path(os.environ["REACHED"]))


def main() -> int:
    """Return 1 if a history finds a fault."""
    sys.dont_write_bytecode = True  # as `python -m simulation` does
    from simulation import history

    command, *words = sys.argv[1:]
    file = Path(words.pop(0)) if command == "trace" else None
    with history.place() as where:
        for seed in words:
            if file is None:
                if history.happens(int(seed), where, "").violations:
                    return 1
            else:
                with _tracer.by(seed):
                    history.happens(int(seed), where, "")
    if file is not None:
        _tracer.write(file)
    return 0


if __name__ == "__main__":
    sys.exit(main())
