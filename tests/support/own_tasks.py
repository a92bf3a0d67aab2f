"""Tasks of a user's own, and runs of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support.runs_at_work import make_run

TASK = """
import random
import numpy as np
import torch
from torch import nn
from torch.utils.data import Dataset


class Noisy(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        drawn = [float(torch.rand(())), float(np.random.rand()), random.random()]
        return torch.tensor(drawn + [float(index)]), index % 2


class Task:
    def __init__(self, width: int = 4, part: str = "nothing"):
        self.width, self.part = width, part
        self.fails("__init__")

    def fails(self, part):
        if self.part == part:
            raise RuntimeError("as it was told to")

    def build_model(self):
        self.fails("build_model")
        return nn.Sequential(nn.Linear(4, self.width), nn.Dropout(0.5), nn.Linear(self.width, 2))

    def open_data(self, place):
        self.fails("open_data")
        return Noisy(), Noisy()

    def loss(self, outputs, targets):
        self.fails("loss")
        return nn.functional.cross_entropy(outputs, targets)
"""


def own(folder: Path, code: Any = TASK, entry: str = "mine:Task", **changes: Any) -> Any:
    job = {"task": entry, "entry": entry, "data": None, "samples": None, "updates": 12, "learning_rate": 0.01}
    return make_run(folder, {"mine.py": code}, **{**job, **changes})
