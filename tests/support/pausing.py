"""Runs that stay at one of their losses until a test lets them continue: a fault finds them at work."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.support.runs_at_work import Rank, make_run, wait_for
from trainjob.contract.paths import RunPaths

TASKS = """
import os, pathlib, time
from trainjob.train.tasks.digits_cnn import DigitsCnn
from trainjob.train.tasks.ffnet_toy import FfnetToy

RUN = pathlib.Path(os.environ["TRAINJOB_RUN_DIR"])


def pausing(task):
    class Pausing(task):
        losses = 0

        def loss(self, outputs, targets):
            self.losses += 1
            if str(self.losses) == os.environ.get("PAUSE_AT"):
                (RUN / ("paused-" + os.environ["RANK"])).touch()
                while not (RUN / "continue").exists():
                    time.sleep(0.01)
                time.sleep(0.25)  # a request by file may be noticed 0.2 s late
            return super().loss(outputs, targets)

    return Pausing


Digits, Toy = pausing(DigitsCnn), pausing(FfnetToy)
"""
_OF_TASK: dict[str, dict[str, Any]] = {
    "Digits": {"data": "digits", "samples": 1437, "optimizer": "sgd", "learning_rate": 0.01},
    "Toy": {"data": None, "samples": 4096, "optimizer": "sgd", "learning_rate": 0.01},
}


def make_pausing(folder: Path, task: str = "Digits", **changes: Any) -> RunPaths:
    """Return a run directory whose ranks stay at the loss that PAUSE_AT of their environment gives the number of."""
    named = {"task": f"pausing:{task}", "entry": f"pausing:{task}"}
    return make_run(folder, {"pausing.py": TASKS}, **{**named, **_OF_TASK[task], **changes})


def wait_until_paused(paths: RunPaths, ranks: Sequence[Rank]) -> None:
    wait_for(lambda: all((paths.folder / f"paused-{rank}").exists() for rank in range(len(ranks))), ranks)


def go_on(paths: RunPaths) -> None:
    (paths.folder / "continue").touch()
