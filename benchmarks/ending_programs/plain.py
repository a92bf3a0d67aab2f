"""A loop of somebody's own: it saves when it is asked to stop, and ends with 0, or as the signal would have ended it."""

import os
import signal
import sys

import torch
import torch.distributed as dist
from small import UPDATES, Small, numbers, sums
from torch import nn
from torch.nn.parallel import DistributedDataParallel

asked = []
for number in (signal.SIGUSR1, signal.SIGTERM):
    signal.signal(number, lambda number, _: asked.append(number))

dist.init_process_group("gloo")
rank = dist.get_rank()
model = DistributedDataParallel(Small())
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
step = 0
if os.path.exists("out/last.pt"):
    saved = torch.load("out/last.pt")
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    step = saved["step"]


def save():
    if rank == 0:
        os.makedirs("out", exist_ok=True)
        content = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
        torch.save(content, "out/last.pt.tmp")
        os.replace("out/last.pt.tmp", "out/last.pt")
    dist.barrier()


while step < UPDATES:
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(numbers[:8]), sums[:8])
    loss.backward()
    optimizer.step()
    step += 1
    if rank == 0 and step % 10 == 0:
        print(f"step {step}/{UPDATES} loss {loss.item():.4f}", flush=True)
    flag = torch.tensor(float(len(asked)))
    dist.all_reduce(flag)
    if flag > 0:
        save()
        dist.destroy_process_group()
        sys.exit(143 if "143" in sys.argv else 0)
save()
dist.destroy_process_group()
