"""What the programs train: a model whose updates take 50 ms, and which counts its updates where they are seen."""

import os
import time

import torch
from torch import nn

UPDATES = int(os.environ.get("UPDATES", "600"))
# A program that goes on has only to show from where.
SECONDS = 0.002 if os.path.exists("counted") else 0.05


class Small(nn.Module):
    """Adds eight numbers. It keeps a byte for each update of rank 0, of all attempts, in the file `counted`."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 1)

    def forward(self, numbers):
        if self.training:
            time.sleep(SECONDS)
            if os.environ.get("RANK", os.environ.get("SLURM_PROCID", "0")) == "0":
                with open("counted", "a") as counted:
                    counted.write(".")
        return self.layer(numbers).squeeze(1)


torch.manual_seed(0)
numbers = torch.randn(256, 8)
sums = numbers.sum(1)
