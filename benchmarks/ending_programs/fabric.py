"""A loop on Lightning's Fabric, which saves now and then, and continues from what it has saved."""

import os

import torch
from lightning.fabric import Fabric
from small import UPDATES, Small, numbers, sums
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

devices = int(os.environ["LOCAL_WORLD_SIZE"])
fabric = Fabric(accelerator="cpu", devices=devices, num_nodes=int(os.environ["WORLD_SIZE"]) // devices, strategy="ddp")
fabric.launch()
model = Small()
model, optimizer = fabric.setup(model, torch.optim.SGD(model.parameters(), lr=0.01))
loader = fabric.setup_dataloaders(DataLoader(TensorDataset(numbers, sums), batch_size=4))
state = {"model": model, "optimizer": optimizer, "step": 0}
if os.path.exists("checkpoints/state.ckpt"):
    fabric.load("checkpoints/state.ckpt", state)
while state["step"] < UPDATES:
    for inputs, targets in loader:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(inputs), targets)
        fabric.backward(loss)
        optimizer.step()
        state["step"] += 1
        if state["step"] % 10 == 0:
            fabric.print(f"iter {state['step']}: loss {loss.item():.4f}", flush=True)
        if state["step"] % 50 == 0:
            fabric.save("checkpoints/state.ckpt", state)
        if state["step"] == UPDATES:
            break
