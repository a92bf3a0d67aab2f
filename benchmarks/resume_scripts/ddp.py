"""A training script for several ranks, right or with the mistake that `--fault` names: see `trainjob verify`."""

import argparse
import datetime
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--fault", default="")
parser.add_argument("--batch-size", type=int, default=4)
parser.add_argument("--accumulate", type=int, default=1)
options = parser.parse_args()
fault = options.fault
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
local_rank = int(os.environ["LOCAL_RANK"])
if fault == "init-rank":
    dist.init_process_group("gloo", rank=local_rank, world_size=size, timeout=datetime.timedelta(seconds=5))
else:
    dist.init_process_group("gloo")
torch.manual_seed(rank if fault == "weights-apart" else 1)
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
trained = model if fault in ("weights-apart", "not-synchronised") else nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
generator = torch.Generator().manual_seed(3)
data = TensorDataset(torch.randn(64, 16, generator=generator), torch.randint(0, 4, (64,), generator=generator))
if fault == "same-samples":
    loader = DataLoader(data, options.batch_size, shuffle=True, generator=torch.Generator().manual_seed(5))
else:
    place = local_rank if fault == "sampler-rank" else rank
    sampler = DistributedSampler(data, size, place, seed=rank if fault == "order-per-rank" else 0)
    loader = DataLoader(data, options.batch_size, sampler=sampler)
for number, (x, y) in enumerate(loader, start=1):
    loss = nn.functional.cross_entropy(trained(x), y)
    if fault != "accumulation-not-divided":
        loss = loss / options.accumulate
    loss.backward()
    if number % options.accumulate == 0:
        optimizer.step()
        optimizer.zero_grad()
if rank == 0 or fault == "all-save":
    torch.save(model.state_dict(), "model.pt")
dist.barrier()
dist.destroy_process_group()
