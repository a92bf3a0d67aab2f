# fsdp2.py
"""FSDP2: the weights of each layer are sharded over all ranks."""

import os

import torch
from torch import distributed, nn
from torch.distributed.fsdp import fully_shard

if torch.cuda.is_available():
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
else:
    device = torch.device("cpu")
distributed.init_process_group("nccl" if device.type == "cuda" else "gloo")

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1)).to(device)
for layer in (model[0], model[2], model):
    fully_shard(layer)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
# Samples of this rank's own.
inputs = torch.randn(64, 8, generator=torch.Generator().manual_seed(distributed.get_rank())).to(device)
targets = inputs.sum(1, keepdim=True)
for _ in range(100):
    loss = nn.functional.mse_loss(model(inputs), targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
held = sum(weight.to_local().numel() for weight in model.parameters())
print(f"rank {distributed.get_rank()} holds {held} of {sum(weight.numel() for weight in model.parameters())} weights")
print(f"loss {loss.item():.4f}")
distributed.destroy_process_group()
