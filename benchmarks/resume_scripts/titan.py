"""A loop as torchtitan has it, sharded over ranks, that resumes or has the fault that `--fault` names."""

import argparse
import os
import shutil
import signal
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard

parser = argparse.ArgumentParser()
parser.add_argument("--fault", default="")
parser.add_argument("--right", default="")
parser.add_argument("--unseeded", action="store_true")
options = parser.parse_args()
fault = options.fault
STEPS, EVERY, BATCH, ROWS = 40, 4, 8, 192
run, folder = Path(os.environ.get("TRAINJOB_RUN_DIR", ".")), Path("outputs")
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
seed = torch.tensor(torch.seed() % 2**62 if options.unseeded else 1)
dist.broadcast(seed, 0)
torch.manual_seed(int(seed))
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 4))
fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, STEPS)
generator = torch.Generator().manual_seed(3)
rows = torch.randn(ROWS, 16, generator=generator), torch.randint(0, 4, (ROWS,), generator=generator)


class Stream(torch.utils.data.IterableDataset):
    """Each pass has an order of its own. Its state is its epoch and its position, as that of torchtitan's datasets."""

    def __init__(self):
        self.epoch = self.position = 0

    def __iter__(self):
        order = torch.randperm(ROWS, generator=torch.Generator().manual_seed(100 + self.epoch)).tolist()
        for at in order[self.position * size + rank :: size]:
            yield rows[0][at], rows[1][at]


stream = Stream()
average = {name: weight.detach().clone() for name, weight in model.state_dict().items()}
scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=7)
step = 0


def newest():
    whole = [path for path in folder.glob("step-*") if fault == "torn" or (path / "done").exists()]
    return max(whole, key=lambda path: path.name, default=None)


def states():
    if fault == "rank-0-only":
        weights = {name: value.to_local() for name, value in model.state_dict().items()}
        moments = optimizer.state_dict()
    else:
        weights, moments = get_state_dict(model, optimizer)
    kept = {"model": weights, "optimizer": moments, "scheduler": scheduler.state_dict(), "scaler": scaler.state_dict()}
    place = {"step": step, "epoch": stream.epoch, "position": stream.position}
    return {**kept, **place, "ema": average, "rng": torch.get_rng_state()}


def save():
    target = folder / f"step-{step:04d}"
    if fault != "rank-0-only":
        dcp.save(states(), checkpoint_id=str(target))
    elif rank == 0:
        target.mkdir(parents=True, exist_ok=True)
        torch.save(states(), target / "state.pt")
    dist.barrier()
    if rank == 0:
        (target / "done").touch()
        for old in sorted(folder.glob("step-*"))[:-3]:
            shutil.rmtree(old)
    dist.barrier()


if newest() is not None:
    if fault == "rank-0-only":
        state = torch.load(newest() / "state.pt", weights_only=False)
        with torch.no_grad():
            for name, value in model.state_dict().items():
                value.to_local().copy_(state["model"][name][: value.to_local().shape[0]])
        optimizer.load_state_dict(state["optimizer"])
    else:
        state = states()
        if fault == "ema":  # what is loaded in place is thrown away
            state["ema"] = {name: weight.clone() for name, weight in average.items()}
        dcp.load(state, checkpoint_id=str(newest()))
        set_state_dict(
            model,
            optimizer,
            model_state_dict=state["model"],
            optim_state_dict=get_state_dict(model, optimizer)[1] if fault == "optimizer" else state["optimizer"],
        )
        if fault == "optimizer":
            optimizer.state.clear()
    if fault != "scheduler":
        scheduler.load_state_dict(state["scheduler"])
    if fault != "scaler":
        scaler.load_state_dict(state["scaler"])
    if fault != "step-counter":
        step = state["step"]
    if fault != "sampler-epoch":
        stream.epoch = state["epoch"]
    if fault != "position":
        stream.position = state["position"]
    if fault != "rng":
        torch.set_rng_state(state["rng"])
asked = False


def on_signal(_number, _frame):
    global asked
    asked = True


signal.signal(signal.SIGUSR1, on_signal)
signal.signal(signal.SIGTERM, on_signal)
# Each iterator of a loader draws a number: not from the generator that dropout draws from.
own = torch.Generator().manual_seed(5)
loader = torch.utils.data.DataLoader(stream, BATCH, num_workers=int(fault == "workers"), generator=own)
batches = iter(loader)
while step < STEPS:
    batch = next(batches, None)
    if batch is None:
        batches = iter(loader)
        batch = next(batches)
    x, y = batch
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    scheduler.step()
    for name, weight in model.state_dict().items():
        average[name].lerp_(weight, 0.1)
    step += 1
    stream.position += BATCH
    is_pass_over = stream.position == ROWS // size
    if is_pass_over:
        stream.epoch, stream.position = stream.epoch + 1, 0
    time.sleep(0.01)
    flag = torch.tensor(float(asked))
    dist.all_reduce(flag)
    is_due = is_pass_over if fault == "between-epochs" else step % EVERY == 0
    # Some look at the flag every few updates only: in between, the loader has to live.
    stops = flag > 0 and (is_due or fault not in ("between-epochs", "workers"))
    if is_due or stops or step == STEPS:
        save()
    if stops:
        if rank == 0:
            (run / "requeue").write_text(f"{step}\n")
        dist.barrier()
        sys.exit(0)
dist.destroy_process_group()
