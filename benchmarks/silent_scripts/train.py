"""A DDP script of several ranks: right, right in the way of `--right`, or with the mistake that `--mistake` names.

None of the mistakes raises an error by itself. `benchmarks/silent_mistakes.py` plants each.
"""

import argparse
import copy
import datetime
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, Dataset, DistributedSampler, IterableDataset, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--mistake", default="")
parser.add_argument("--right", default="")
parser.add_argument("--batch-size", type=int, default=4)
parser.add_argument("--accumulate", type=int, default=1)
options = parser.parse_args()
mistake, right = options.mistake, options.right
rank, size, local_rank = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))

# Long enough for a busy machine; one that hangs ends by it.
limit = datetime.timedelta(seconds=20 if mistake in ("hang", "init-rank") else 120)
if mistake == "init-rank":
    dist.init_process_group("gloo", rank=local_rank, world_size=size, timeout=limit)
else:
    dist.init_process_group("gloo", timeout=limit)


class Augmented(Dataset):
    """Samples with noise that is drawn anew each time."""

    def __init__(self, data):
        self.data = data

    def __len__(self):
        return len(self.data)

    def __getitem__(self, index):
        x, y = self.data[index]
        return x + 0.01 * torch.randn(x.shape), y


class Recomputed(nn.Sequential):
    """Layers whose activations are computed again in the backward pass."""

    def forward(self, x):
        return checkpoint(super().forward, x, use_reentrant=False)


class Stream(IterableDataset):
    """Every rank reads all and keeps its share."""

    def __init__(self, data):
        self.data = data

    def __iter__(self):
        return (self.data[index] for index in range(rank, len(self.data), size))


class Batches:
    """A sampler of batches, written by hand."""

    def __init__(self, length):
        self.length = length

    def __len__(self):
        return self.length // size // options.batch_size

    def __iter__(self):
        order = torch.randperm(self.length, generator=torch.Generator().manual_seed(3)).tolist()[rank::size]
        step = options.batch_size
        return (order[at : at + step] for at in range(0, len(order) - step + 1, step))


generator = torch.Generator().manual_seed(3)
samples = 130 if right == "uneven-end" else 128
data = TensorDataset(
    torch.randn(samples, 16, generator=generator), torch.randint(0, 4, (samples,), generator=generator)
)
held_out = TensorDataset(torch.randn(32, 16, generator=generator), torch.randint(0, 4, (32,), generator=generator))

torch.manual_seed(rank if mistake == "weights-apart" or right == "seed-per-rank" else 1)
layers = [nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4)]
if mistake == "evaluation-mode" or right == "dropout":
    layers.insert(2, nn.Dropout(0.2))
if right == "checkpointing":
    layers = [Recomputed(*layers[:2]), *layers[1:]]
if right in ("frozen-norm", "norm"):
    layers.insert(1, nn.BatchNorm1d(32))
model = nn.Sequential(*layers)
if right == "frozen":
    model[0].requires_grad_(False)
if mistake == "weights-apart" or right in ("by-hand", "global-mean"):
    trained = model
else:
    trained = DistributedDataParallel(model, find_unused_parameters=right == "find-unused")
if right == "half-hook":
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

    trained.register_comm_hook(None, default_hooks.fp16_compress_hook)
if right == "by-hand":
    for weight in model.parameters():
        dist.broadcast(weight.data, 0)

rate = 0.05
if mistake == "rate-scaled-twice":
    rate = rate * size * size
weights = copy.deepcopy(model).parameters() if mistake == "other-weights" else model.parameters()
if right == "frozen":
    weights = [weight for weight in weights if weight.requires_grad]
if right == "groups":
    weights = [{"params": model[0].parameters(), "lr": 0.01}, {"params": model[2].parameters()}]
if right == "adam":
    optimizer = torch.optim.AdamW(weights, lr=1e-3)
elif right == "lbfgs":
    optimizer = torch.optim.LBFGS(weights, lr=0.1, max_iter=3)
elif right == "zero":
    from torch.distributed.optim import ZeroRedundancyOptimizer

    optimizer = ZeroRedundancyOptimizer(weights, torch.optim.SGD, lr=rate)
else:
    optimizer = torch.optim.SGD(weights, lr=0.0 if mistake == "rate-zero" else rate)
second = torch.optim.SGD(model[2].parameters(), lr=0.01) if right == "two-optimizers" else None
if right == "warm-up":
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, step / 4))
elif right == "one-cycle":
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total_steps=64)
else:
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 64)
uses_scaler = mistake == "clips-scaled" or right == "scaler"
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, enabled=uses_scaler)
average = torch.optim.swa_utils.AveragedModel(model) if right == "average" else None

if mistake == "same-samples":
    loader = DataLoader(data, options.batch_size, shuffle=True, generator=torch.Generator().manual_seed(5))
    sampler = None
elif right == "stream":
    loader, sampler = DataLoader(Stream(data), options.batch_size), None
elif right == "batch-sampler":
    loader, sampler = DataLoader(data, batch_sampler=Batches(len(data))), None
else:
    place = local_rank if mistake == "sampler-rank" else rank
    seed = rank if mistake == "order-per-rank" else 0
    sampler = DistributedSampler(data, size, place, seed=seed)
    workers = 1 if right == "workers" else 0
    chosen = Augmented(data) if right == "augmented" else data
    loader = DataLoader(chosen, options.batch_size, sampler=sampler, num_workers=workers)


def loss_of(x, y):
    out = trained.module(x) if mistake == "module-called" else trained(x)
    if mistake == "forward-reduce":
        centre = out.mean(0)
        dist.all_reduce(centre)
        return (centre / size - torch.eye(4)[0]).square().sum()
    if mistake == "sum-of-losses":
        return nn.functional.cross_entropy(out, y, reduction="sum")
    if mistake == "not-finite":
        return nn.functional.cross_entropy(out, y) + torch.log(-out.square().sum())
    if right == "global-mean":
        return nn.functional.cross_entropy(out, y, reduction="sum") / (options.batch_size * size)
    return nn.functional.cross_entropy(out, y)


def evaluate():
    model.eval()
    total = torch.zeros(1)
    with torch.no_grad():
        for x, y in DataLoader(held_out, 8, sampler=DistributedSampler(held_out, size, rank, shuffle=False)):
            total += nn.functional.cross_entropy(model(x), y, reduction="sum")
    dist.all_reduce(total)
    if mistake != "evaluation-mode":
        model.train()


if mistake == "evaluation-mode":
    evaluate()
number = 0
for epoch in range(2):
    if sampler is not None and mistake != "no-set-epoch":
        sampler.set_epoch(epoch)
    for x, y in loader:
        number += 1
        is_last = number % options.accumulate == 0
        if right == "zero-first" and number % options.accumulate == 1 % options.accumulate:
            optimizer.zero_grad()
        if right == "frozen-norm":
            model[1].eval()
        if right == "no-sync":
            trained.require_backward_grad_sync = is_last
        if right == "lbfgs":

            def closure(x=x, y=y):
                optimizer.zero_grad()
                loss = loss_of(x, y)
                loss.backward()
                return loss

            optimizer.step(closure)
            continue
        if mistake == "never-synced":
            with trained.no_sync():
                loss = loss_of(x, y)
                loss.backward()
        else:
            loss = loss_of(x, y)
            if mistake != "accumulation-not-divided":
                loss = loss / options.accumulate
            scaler.scale(loss).backward()
        if right == "metrics":
            shown = loss.detach().clone()
            dist.all_reduce(shown)
        if mistake == "hang" and number == 3 and rank == 0:
            dist.barrier()
        if not is_last:
            continue
        if mistake == "reduced-again":
            for weight in model.parameters():
                dist.all_reduce(weight.grad)
        if right in ("by-hand", "global-mean"):
            for weight in model.parameters():
                dist.all_reduce(weight.grad)
                if right == "by-hand":
                    weight.grad /= size
        if right == "scaler":
            scaler.unscale_(optimizer)
        if mistake == "clips-scaled" or right in ("scaler", "clips"):
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        if second is not None:
            second.step()
        if average is not None:
            average.update_parameters(model)
        for _ in range(size if mistake == "scheduler-by-ranks" else 1):
            scheduler.step()
        if mistake != "not-zeroed" and right != "zero-first":
            optimizer.zero_grad()
    if mistake != "evaluation-mode":
        evaluate()
if rank == 0 or mistake == "all-save":
    torch.save(model.state_dict(), "model.pt")
dist.barrier()
dist.destroy_process_group()
