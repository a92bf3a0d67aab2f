"""Blocks come with the samples the one order gives them, however many updates are gathered at once."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from trainjob.train.samples.arithmetic import Arithmetic
from trainjob.train.samples.batches import blocks
from trainjob.train.samples.sources import DatasetSource


def counts(samples: int = 103, device_iterations: int = 1, instances: int = 2, **more: Any) -> Arithmetic:
    return Arithmetic(
        samples=samples,
        micro_batch=3,
        micro_batches=2 * instances,
        instances=instances,
        device_iterations=device_iterations,
        remainder="drop",
        seed=5,
    )._replace(**more)


@pytest.fixture
def spawned() -> Iterator[None]:
    before = multiprocessing.get_start_method()
    multiprocessing.set_start_method("spawn", force=True)
    yield
    multiprocessing.set_start_method(before, force=True)


def test_a_request_to_stop_ends_no_worker(spawned: Any) -> None:
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
