"""A task as a user writes one: tiny, and slow in its first attempt, so that a fault finds it at work.

With HOLDS=1 the first attempt, once its progress is recorded, waits for a request to stop or for a newer attempt.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import TensorDataset

# Of an array, task 0 alone is slow.
IS_SLOW = os.environ.get("TRAINJOB_ATTEMPT") == "1" and os.environ.get("SLURM_ARRAY_TASK_ID", "0") == "0"
PAUSE_S = float(os.environ.get("PAUSE_S", "0")) if IS_SLOW else 0.0
HOLDS = IS_SLOW and os.environ.get("HOLDS") == "1"


def is_held(run: Path) -> bool:
    try:
        update = json.loads((run / "progress.json").read_text())["update"]
    except FileNotFoundError:
        return False
    return update >= 2 and not (run / "stop").exists() and (run / "attempt").read_text().strip() == "1"


class Slow:
    def build_model(self) -> Any:
        return nn.Linear(8, 2)

    def open_data(self, place: Any) -> Any:
        numbers = torch.arange(256)
        inputs = (numbers[:, None] >> torch.arange(8) & 1).to(torch.get_default_dtype())
        return TensorDataset(inputs, inputs.sum(1).long() % 2)

    def loss(self, outputs: Any, targets: Any) -> Any:
        time.sleep(PAUSE_S)
        while HOLDS and is_held(Path(os.environ["TRAINJOB_RUN_DIR"])):
            time.sleep(0.05)
        return nn.functional.cross_entropy(outputs, targets)
