"""A process that ends while its background thread prepares values."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import threading, time
from trainjob.train.samples.batches import ahead

begun = threading.Event()

def values():
    yield 0
    begun.set()
    time.sleep(0.3)
    print("made", flush=True)
    yield 1
    yield from range(1000)

upcoming = ahead(values(), 2)
print(next(upcoming), flush=True)
begun.wait()
"""


def test_a_program_ends_though_nobody_closed_and_not_amid_a_value() -> None:
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM], capture_output=True, timeout=300, check=False
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, b"0\nmade\n", b"")
