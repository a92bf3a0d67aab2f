"""A task as a user writes one: tiny, and slow in its first attempt, so that whatever befalls it finds it at work."""

from __future__ import annotations

import os
import time

import torch
from torch import nn
from torch.utils.data import TensorDataset

# Of an array, task 0 alone is slow.
IS_SLOW = os.environ.get("TRAINJOB_ATTEMPT") == "1" and os.environ.get("SLURM_ARRAY_TASK_ID", "0") == "0"
PAUSE_S = float(os.environ.get("PAUSE_S", "0")) if IS_SLOW else 0.0


class Slow:
    def build_model(self):
        return nn.Linear(8, 2)

    def open_data(self, place):
        numbers = torch.arange(256)
        inputs = (numbers[:, None] >> torch.arange(8) & 1).to(torch.get_default_dtype())
        return TensorDataset(inputs, inputs.sum(1).long() % 2)

    def loss(self, outputs, targets):
        time.sleep(PAUSE_S)
        return nn.functional.cross_entropy(outputs, targets)
