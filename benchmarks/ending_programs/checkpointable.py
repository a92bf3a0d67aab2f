"""What submitit starts in a job, a callable with a method `checkpoint`, and how its sbatch file starts it."""

import os
import sys
from pathlib import Path

import torch
from small import UPDATES, Small, numbers, sums
from submitit.core import submission, utils
from torch import nn


class Training:
    def __init__(self):
        self.model, self.step = Small(), 0
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)

    def __call__(self):
        while self.step < UPDATES:
            self.optimizer.zero_grad()
            nn.functional.mse_loss(self.model(numbers[:8]), sums[:8]).backward()
            self.optimizer.step()
            self.step += 1
        return self.step

    def checkpoint(self):
        return utils.DelayedSubmission(self)


if __name__ == "__main__":
    import checkpointable

    folder = Path("submitit_logs")
    folder.mkdir(exist_ok=True)
    job = os.environ["SLURM_JOB_ID"]
    if "SLURM_ARRAY_JOB_ID" in os.environ:
        job = os.environ["SLURM_ARRAY_JOB_ID"] + "_" + os.environ["SLURM_ARRAY_TASK_ID"]
    if not list(folder.glob(f"{job}_submitted.pkl")):
        made = utils.DelayedSubmission(checkpointable.Training())
        made.set_timeout(60, 3)
        made.dump(folder / f"{job}_submitted.pkl")
    sys.argv = ["submitit.core._submit", str(folder)]
    submission.submitit_main()
