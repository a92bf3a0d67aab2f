"""Engine ipu under rehearse: beside the real Horovod, and compiled once before its instances start."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.local_runs import Here

# Instances start one interpreter each with torch: slow beside other work.
pytestmark = pytest.mark.timeout(500)
SMALL = ("--cluster", "pod4", "--instances", "2", "--replicas", "4", "--micro-batch", "4", "--updates", "4")

TELLS_HOROVOD = """\
from trainjob.train.tasks.digits_cnn import DigitsCnn


class Told(DigitsCnn):
    def build_model(self):
        import horovod.torch
        print("horovod", horovod.__version__, horovod.torch.mpi_enabled(), flush=True)
        return super().build_model()
"""


def rehearsed(here: Here, *words: str) -> Path:
    """Return where the run lies that a rehearsal kept: it has made all of its updates."""
    verdict = here.json("rehearse", "--keep", *SMALL, *words)
    assert (verdict["passed"], verdict["update"]) == (True, 4)
    return Path(verdict["folder"])


def test_the_real_horovod_takes_the_means(here: Here, needs: Callable[[str], Path]) -> None:
    here.write("told.py", TELLS_HOROVOD)
    here.environ["TRAINJOB_PYTHON"] = str(needs("horovod"))
    folder = rehearsed(here, "--task", "told:Told", "--data", "digits", "--samples", "1437")
    logs = [(folder / "logs" / f"rank-{rank:04d}.log").read_text() for rank in (0, 1)]
    assert all("horovod 0." in log and "standin" not in log for log in logs), logs


def test_it_is_compiled_once_and_before(here: Here) -> None:
    folder = rehearsed(here, "--compile-first")
    marks = list((folder / "executables").glob("*.standin"))
    # Training, evaluation and the layout's test, each compiled by the offline step and found by both instances.
    assert [len(mark.read_text().splitlines()) for mark in marks] == [1, 1, 1]
    output = (folder / "logs" / "scheduler.out").read_text()
    assert output.count("Offline: no partition is taken") == 1
    training = (folder / "logs" / "rank-0000.log").read_text().rpartition("task digits-cnn")[2]
    assert "Graph compilation" not in training
