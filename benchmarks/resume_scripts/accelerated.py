"""A training script with accelerate that resumes, or has the fault that `--fault` names."""

import argparse
import os
import shutil
import signal
import sys
import time
from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, Sampler, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--fault", default="")
parser.add_argument("--right", default="")
parser.add_argument("--unseeded", action="store_true")
options = parser.parse_args()
fault = options.fault

SAMPLES, BATCH, EVERY, EPOCHS = 96, 8, 4, 3
run, folder = Path(os.environ.get("TRAINJOB_RUN_DIR", ".")), Path("checkpoints")
folder.mkdir(exist_ok=True)
if not options.unseeded:
    set_seed(1)
accelerator = Accelerator(cpu=True)
if fault == "scaler":
    # mixed_precision="fp16" makes one on GPUs only.
    accelerator.scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=7)
is_sharded = fault == "rank-0-only"


class Shuffled(Sampler):
    epoch = 0

    def __iter__(self):
        generator = torch.Generator().manual_seed(100 + self.epoch)
        return iter(torch.randperm(SAMPLES, generator=generator).tolist())

    def __len__(self):
        return SAMPLES


class Counts:
    def __init__(self):
        self.epoch = self.batch = self.step = 0

    def state_dict(self):
        return dict(vars(self))

    def load_state_dict(self, state):
        vars(self).update(state)
        if fault == "step-counter":
            self.step = 0


class Average:
    def __init__(self, model):
        self.weights = {name: weight.detach().clone() for name, weight in model.state_dict().items()}

    def update(self, model):
        for name, weight in model.state_dict().items():
            self.weights[name].lerp_(weight, 0.1)

    def state_dict(self):
        return {f"ema.{name}": weight for name, weight in self.weights.items()}

    def load_state_dict(self, state):
        if fault != "ema":
            self.weights = {name[4:]: weight for name, weight in state.items()}


generator = torch.Generator().manual_seed(3)
data = TensorDataset(
    torch.randn(SAMPLES, 16, generator=generator), torch.randint(0, 4, (SAMPLES,), generator=generator)
)
sampler = Shuffled()
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 4))
average = Average(model)
if is_sharded:
    # On CPUs accelerate itself does not shard.
    from torch.distributed.fsdp import fully_shard

    fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, EPOCHS * SAMPLES // BATCH)
counts = Counts()
# Each iterator of a loader draws a number: not from the generator that dropout draws from.
own = torch.Generator().manual_seed(5)
loader = DataLoader(data, BATCH, sampler=sampler, num_workers=2 if fault == "workers" else 0, generator=own)
if is_sharded:
    optimizer, loader = accelerator.prepare(optimizer, loader)
else:
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
if fault != "scheduler":
    scheduler = accelerator.prepare(scheduler)
accelerator.register_for_checkpointing(counts, average)


def newest():
    whole = [path for path in folder.glob("step-*") if fault == "torn" or (path / "done").exists()]
    return max(whole, key=lambda path: path.name, default=None)


def save(epoch, batch):
    counts.epoch, counts.batch = epoch, batch
    target = folder / f"step-{epoch:03d}-{batch:03d}"
    if accelerator.is_main_process:
        shutil.rmtree(target, ignore_errors=True)
    accelerator.wait_for_everyone()
    if is_sharded:
        weights = model.state_dict()
        if accelerator.is_main_process:
            target.mkdir()
            states = {"model": weights, "optimizer": optimizer.state_dict(), "scheduler": scheduler.state_dict()}
            torch.save({**states, "counts": counts.state_dict()}, target / "state.pt")
    else:
        accelerator.save_state(str(target))
    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        (target / "done").touch()
    accelerator.wait_for_everyone()


if newest() is not None:
    if fault == "optimizer":
        fresh = {**optimizer.state_dict(), "state": {}}
    if fault == "rng":
        (newest() / "random_states_0.pkl").unlink()
    if fault == "scaler":
        scaler_state = accelerator.scaler.state_dict()
    if is_sharded:
        state = torch.load(newest() / "state.pt", weights_only=False)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        scheduler.load_state_dict(state["scheduler"])
        counts.load_state_dict(state["counts"])
    else:
        accelerator.load_state(str(newest()))
    if fault == "scaler":
        accelerator.scaler.load_state_dict(scaler_state)
    if fault == "optimizer":
        optimizer.load_state_dict({**fresh, "param_groups": optimizer.state_dict()["param_groups"]})

asked = False


def on_signal(_number, _frame):
    global asked
    asked = True


signal.signal(signal.SIGUSR1, on_signal)
signal.signal(signal.SIGTERM, on_signal)


def stop(epoch, batch):
    save(epoch, batch)
    (run / "requeue").write_text(f"{counts.step}\n")
    sys.exit(0)


first_epoch, first_batch = counts.epoch, counts.batch
for epoch in range(first_epoch, EPOCHS):
    sampler.epoch = epoch - first_epoch if fault == "sampler-epoch" else epoch
    begin = first_batch if epoch == first_epoch and fault != "position" else 0
    batches = accelerator.skip_first_batches(loader, begin) if begin else loader
    for batch, (x, y) in enumerate(batches, start=begin):
        loss = nn.functional.cross_entropy(model(x), y)
        accelerator.backward(loss)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
        if not is_sharded:
            average.update(accelerator.unwrap_model(model))
        counts.step += 1
        time.sleep(0.01)
        if fault == "between-epochs" or (fault == "workers" and counts.step % EVERY):
            continue
        if asked:
            accelerator.set_trigger()
        if accelerator.check_trigger():
            stop(epoch, batch + 1)
        if counts.step % EVERY == 0:
            save(epoch, batch + 1)
    save(epoch + 1, 0)
    if asked:
        accelerator.set_trigger()
    if accelerator.check_trigger():
        stop(epoch + 1, 0)
