"""Accelerate's example of checkpointing: a folder each so many steps, and `resume_from_checkpoint` with `skip_first_batches`."""

import os

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from small import UPDATES, Small, numbers, sums
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

accelerator = Accelerator(cpu=True)
set_seed(42)
model = Small()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
loader = DataLoader(TensorDataset(numbers, sums), batch_size=4, shuffle=True)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
overall_step, starting_epoch, resume_step = 0, 0, None
if os.path.isdir("output"):
    newest = max(
        (one for one in os.listdir("output") if one.startswith("step_")), key=lambda one: int(one[5:]), default=None
    )
    if newest:
        accelerator.print(f"Resumed from checkpoint: output/{newest}")
        accelerator.load_state(f"output/{newest}")
        overall_step = int(newest[5:])
        starting_epoch, resume_step = divmod(overall_step, len(loader))
epochs = -(-UPDATES // len(loader))
for epoch in range(starting_epoch, epochs):
    model.train()
    skips = epoch == starting_epoch and resume_step
    active = accelerator.skip_first_batches(loader, resume_step) if skips else loader
    for inputs, targets in active:
        loss = nn.functional.mse_loss(model(inputs), targets)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        overall_step += 1
        if overall_step % 50 == 0:
            accelerator.save_state(f"output/step_{overall_step}")
        if overall_step == UPDATES:
            break
    accelerator.print(f"epoch {epoch}: loss {loss.item():.4f}", flush=True)
accelerator.end_training()
