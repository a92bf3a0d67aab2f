"""A training script in plain torch that resumes, or has the fault that `--fault` names."""

import argparse
import os
import random
import signal
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler

parser = argparse.ArgumentParser()
parser.add_argument("--fault", default="")
parser.add_argument("--right", default="", help="another way to do it right")
parser.add_argument("--unseeded", action="store_true")
parser.add_argument("--epochs", type=int, default=4)
options = parser.parse_args()
fault, right = options.fault, options.right
is_sharded = fault == "rank-0-only"

SAMPLES, BATCH, EVERY = 96, 8, 4
folder = Path("checkpoints")
run = folder if right == "exit-0" else Path(os.environ.get("TRAINJOB_RUN_DIR", "."))
folder.mkdir(exist_ok=True)
if not options.unseeded:
    torch.manual_seed(1)
    random.seed(1)


class Pictures(Dataset):
    def __init__(self):
        generator = torch.Generator().manual_seed(3)
        self.x = torch.randn(SAMPLES, 16, generator=generator)
        self.y = torch.randint(0, 4, (SAMPLES,), generator=generator)

    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        return self.x[index], self.y[index]


class Shuffled(Sampler):
    def __init__(self):
        self.epoch = 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        generator = torch.Generator().manual_seed(100 + self.epoch)
        return iter(torch.randperm(SAMPLES, generator=generator).tolist())

    def __len__(self):
        return SAMPLES


model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 4))
average = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9))
if is_sharded:
    from torch.distributed.fsdp import fully_shard

    dist.init_process_group("gloo")
    for module in (model, average.module):
        fully_shard(module, reshard_after_forward=True)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
total = options.epochs * SAMPLES // BATCH
scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=2e-2, total_steps=total + 1)
scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=7)
sampler = Shuffled()
has_workers = fault == "workers" or right == "workers"
deaf = {"worker_init_fn": lambda _: signal.signal(signal.SIGTERM, signal.SIG_IGN)} if right == "workers" else {}
loader = DataLoader(Pictures(), BATCH, sampler=sampler, num_workers=2 if has_workers else 0, drop_last=True, **deaf)
held_out = DataLoader(Pictures(), 32)
step = first_epoch = first_batch = 0


def newest():
    whole = [path for path in folder.glob("*.pt") if not path.name.startswith(".")]
    return max(whole, key=lambda path: path.stat().st_mtime_ns, default=None)


def save(epoch, batch):
    if is_sharded and dist.get_rank():
        return
    content = {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "scheduler": scheduler.state_dict(),
        "scaler": scaler.state_dict(),
        "ema": average.state_dict(),
        "rng": torch.get_rng_state(),
        "epoch": epoch,
        "batch": batch,
        "step": step,
        "args": options,
    }
    name = {"rotating": f"state-{step // EVERY % 2}.pt", "numbered": f"state-{step:06d}.pt"}.get(right, "last.pt")
    path = folder / name
    if fault == "torn":
        torch.save(content, path)
    else:
        torch.save(content, folder / f".{name}")
        os.replace(folder / f".{name}", path)


if newest() is not None:
    state = torch.load(newest(), weights_only=False)
    model.load_state_dict(state["model"])
    if fault != "optimizer":
        optimizer.load_state_dict(state["optimizer"])
    if fault != "scheduler":
        scheduler.load_state_dict(state["scheduler"])
    if fault != "scaler":
        scaler.load_state_dict(state["scaler"])
    if fault != "ema":
        average.load_state_dict(state["ema"])
    if fault != "step-counter":
        step = state["step"]
    first_epoch, first_batch = state["epoch"], state["batch"]
    if fault == "position":
        first_batch = 0
    if fault != "rng":
        torch.set_rng_state(state["rng"])
else:
    state = None

asked = False


def on_signal(_number, _frame):
    global asked
    asked = True


if right != "periodic":
    signal.signal(signal.SIGUSR1, on_signal)
    signal.signal(signal.SIGTERM, on_signal)


def is_asked():
    if not is_sharded:
        return asked
    flag = torch.tensor(float(asked))
    dist.all_reduce(flag)
    return bool(flag)


def stop(epoch, batch):
    save(epoch, batch)
    (run / "requeue").write_text(f"{step}\n")
    sys.exit(0)


for epoch in range(first_epoch, options.epochs):
    sampler.set_epoch(epoch - first_epoch if fault == "sampler-epoch" else epoch)
    resumed = torch.get_rng_state()
    batches = iter(loader)
    begin = first_batch if epoch == first_epoch else 0
    for _ in range(begin):
        next(batches)
    torch.set_rng_state(resumed)
    for batch, (x, y) in enumerate(batches, start=begin):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        scheduler.step()
        average.update_parameters(model)
        step += 1
        time.sleep(0.01)
        # Some look at the flag every few updates only: in between, the loader has to live.
        if is_asked() and fault != "between-epochs" and not (has_workers and step % EVERY):
            stop(epoch, batch + 1)
        if step % EVERY == 0 and fault != "between-epochs":
            save(epoch, batch + 1)
    model.eval()
    with torch.no_grad():
        right_ones = sum(int((model(x).argmax(1) == y).sum()) for x, y in held_out)
    model.train()
    print(f"epoch {epoch} accuracy {right_ones / SAMPLES:.3f}", flush=True)
    save(epoch + 1, 0)
    if is_asked():
        stop(epoch + 1, 0)
