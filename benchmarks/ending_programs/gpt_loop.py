"""A loop as nanoGPT's train.py has it: `iter N: loss …`, and out/ckpt.pt after every evaluation."""

import os
import time

import torch
from small import UPDATES, Small, numbers, sums
from torch.distributed import destroy_process_group, init_process_group
from torch.nn.functional import mse_loss
from torch.nn.parallel import DistributedDataParallel as DDP

out_dir = "out"
eval_interval = 50
log_interval = 1
max_iters = UPDATES
ddp = int(os.environ.get("RANK", -1)) != -1
if ddp:
    init_process_group(backend="gloo")
    master_process = int(os.environ["RANK"]) == 0
else:
    master_process = True
if master_process:
    os.makedirs(out_dir, exist_ok=True)
iter_num = 0
model = Small()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
if os.path.exists(os.path.join(out_dir, "ckpt.pt")):
    print(f"Resuming training from {out_dir}")
    checkpoint = torch.load(os.path.join(out_dir, "ckpt.pt"))
    model.load_state_dict(checkpoint["model"])
    optimizer.load_state_dict(checkpoint["optimizer"])
    iter_num = checkpoint["iter_num"]
raw_model = model
if ddp:
    model = DDP(model)
t0 = time.time()
while True:
    if iter_num % eval_interval == 0 and master_process:
        model.eval()
        print(f"step {iter_num}: train loss {mse_loss(raw_model(numbers), sums).item():.4f}", flush=True)
        model.train()
        if iter_num > 0:
            checkpoint = {"model": raw_model.state_dict(), "optimizer": optimizer.state_dict(), "iter_num": iter_num}
            torch.save(checkpoint, os.path.join(out_dir, "ckpt.pt"))
    if iter_num >= max_iters:
        break
    loss = mse_loss(model(numbers[:8]), sums[:8])
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    t1 = time.time()
    dt = t1 - t0
    t0 = t1
    if iter_num % log_interval == 0 and master_process:
        print(f"iter {iter_num}: loss {loss.item():.4f}, time {dt * 1000:.2f}ms", flush=True)
    iter_num += 1
if ddp:
    destroy_process_group()
