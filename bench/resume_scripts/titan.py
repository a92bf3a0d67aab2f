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
options = parser.parse_args()
fault = options.fault
STEPS, EVERY, BATCH, ROWS = 40, 4, 8, 96
run, folder = Path(os.environ.get("TRAINJOB_RUN_DIR", ".")), Path("outputs")
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(1)
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, STEPS)
generator = torch.Generator().manual_seed(3)
rows = torch.randn(ROWS, 16, generator=generator), torch.randint(0, 4, (ROWS,), generator=generator)


class Stream(torch.utils.data.IterableDataset):
    """Its state is its position, as that of torchtitan's datasets."""

    def __init__(self):
        self.position = 0

    def __iter__(self):
        while True:
            at = (self.position * size + rank) % ROWS
            self.position += 1
            yield rows[0][at], rows[1][at]

    def state_dict(self):
        return {"position": self.position}


stream = Stream()
step = 0


def newest():
    whole = [path for path in folder.glob("step-*") if (path / "done").exists()]
    return max(whole, key=lambda path: path.name, default=None)


def save():
    target = folder / f"step-{step:04d}"
    if fault == "rank-0-only":
        if rank == 0:
            target.mkdir(parents=True, exist_ok=True)
            local = {name: value.to_local() for name, value in model.state_dict().items()}
            states = {"model": local, "optimizer": optimizer.state_dict()}
            torch.save(
                {**states, "step": step, "position": stream.position, "scheduler": scheduler.state_dict()},
                target / "state.pt",
            )
    else:
        weights, moments = get_state_dict(model, optimizer)
        state = {"model": weights, "optimizer": moments, "scheduler": scheduler.state_dict()}
        dcp.save({**state, "step": step, "position": stream.position}, checkpoint_id=str(target))
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
        weights, moments = get_state_dict(model, optimizer)
        state = {"model": weights, "optimizer": moments, "scheduler": scheduler.state_dict(), "step": 0, "position": 0}
        dcp.load(state, checkpoint_id=str(newest()))
        moments = state["optimizer"]
        set_state_dict(
            model,
            optimizer,
            model_state_dict=state["model"],
            optim_state_dict=get_state_dict(model, optimizer)[1] if fault == "optimizer" else moments,
        )
        if fault == "optimizer":
            optimizer.state.clear()
    if fault != "scheduler":
        scheduler.load_state_dict(state["scheduler"])
    if fault != "step-counter":
        step = state["step"]
    if fault != "position":
        stream.position = state["position"]
asked = False


def on_signal(_number, _frame):
    global asked
    asked = True


signal.signal(signal.SIGUSR1, on_signal)
signal.signal(signal.SIGTERM, on_signal)
batches = iter(torch.utils.data.DataLoader(stream, BATCH))
while step < STEPS:
    before = stream.position
    x, y = next(batches)
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    scheduler.step()
    step += 1
    time.sleep(0.01)
    flag = torch.tensor(float(asked))
    dist.all_reduce(flag)
    if step % EVERY == 0 or (flag > 0 and fault != "between-epochs"):
        save()
    if flag > 0 and (fault != "between-epochs" or step % 20 == 0):
        if rank == 0:
            (run / "requeue").write_text(f"{step}\n")
        dist.barrier()
        sys.exit(0)
dist.destroy_process_group()
