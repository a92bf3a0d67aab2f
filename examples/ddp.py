# ddp.py
"""Plain PyTorch: DistributedDataParallel on whatever each rank has, a GPU or CPUs."""

import os

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

if torch.cuda.is_available():
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
else:
    device = torch.device("cpu")
distributed.init_process_group("nccl" if device.type == "cuda" else "gloo")

torch.manual_seed(0)
model = DistributedDataParallel(nn.Linear(8, 1).to(device))
optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
# Samples of this rank's own.
inputs = torch.randn(64, 8, generator=torch.Generator().manual_seed(distributed.get_rank())).to(device)
targets = inputs.sum(1, keepdim=True)
for step in range(1, 101):
    loss = nn.functional.mse_loss(model(inputs), targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0 and distributed.get_rank() == 0:
        print(f"step {step}: loss {loss.item():.4f}")
distributed.destroy_process_group()
