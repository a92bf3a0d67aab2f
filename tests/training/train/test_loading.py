"""Loading in processes: threads and workers that end well, and streams that are the same for any number of readers."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.support.runs_at_work import make_run, tensors, train, train_here
from tests.support.streams import JOB, MINE, rows
from trainjob.train.samples.arithmetic import Arithmetic
from trainjob.train.samples.batches import blocks
from trainjob.train.samples.sources import DatasetSource

AHEAD = """
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
    ended = subprocess.run([sys.executable, "-W", "error", "-c", AHEAD], capture_output=True, timeout=300, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, b"0\nmade\n", b"")


@pytest.fixture
def spawned() -> Iterator[None]:
    before = multiprocessing.get_start_method()
    multiprocessing.set_start_method("spawn", force=True)
    yield
    multiprocessing.set_start_method(before, force=True)


@pytest.mark.usefixtures("spawned")
def test_a_request_to_stop_ends_no_worker() -> None:
    """Slurm sends it to every process of a step, and a spawned process has no handler of the rank's."""
    data = torch.utils.data.TensorDataset(torch.arange(64.0)[:, None], torch.arange(64))
    counts = Arithmetic(64, 4, 1, 1, 1, "drop", 3)
    made = blocks(DatasetSource(data), counts, 0, 0, 16, workers=1)
    others = set(multiprocessing.active_children())  # of tests before this one
    next(made)
    (worker,) = set(multiprocessing.active_children()) - others
    assert worker.pid is not None
    os.kill(worker.pid, signal.SIGUSR1)
    assert len(list(made)) == 15


def test_a_stream_is_the_same_through_reading_processes() -> None:
    assert rows(1, workers=2) == rows(1)


def test_two_instances_on_a_stream_end_with_the_weights_of_one(tmp_path: Path) -> None:
    one = make_run(tmp_path / "one", {"mine.py": MINE}, updates=6, **{**JOB, "accumulation": 2})
    assert train_here(one) == 0
    two = make_run(tmp_path / "two", {"mine.py": MINE}, updates=6, instances=2, **JOB)
    assert train(two, 2) == [0, 0]
    for name, weight in tensors(one).items():
        assert torch.allclose(weight, tensors(two)[name], rtol=0, atol=1e-12), name
