"""A loop as torch's imagenet example has it, which saves after each epoch, or with the fault that `--fault` names."""

import argparse
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--fault", default="")
parser.add_argument("--right", default="", help="workers: their loader shuffles in another process")
parser.add_argument("--unseeded", action="store_true")
options = parser.parse_args()
fault = options.fault
EPOCHS, SAMPLES = 5, 80
if not options.unseeded:
    torch.manual_seed(1)


def pictures(seed):
    generator = torch.Generator().manual_seed(seed)
    return TensorDataset(
        torch.randn(SAMPLES, 3, 8, 8, generator=generator), torch.randint(0, 4, (SAMPLES,), generator=generator)
    )


model = nn.Sequential(
    nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Dropout(0.1), nn.Linear(8 * 36, 4)
)
optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9, weight_decay=1e-4)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.5)
workers = 2 if options.right == "workers" else 0
train = DataLoader(pictures(3), 8, shuffle=True, num_workers=workers)
held_out = DataLoader(pictures(4), 20)
start_epoch, best = 0, 0.0
path = Path("checkpoint.pth.tar")
if path.exists():
    state = torch.load(path)
    model.load_state_dict(state["state_dict"])
    best = state["best_acc1"]
    if fault != "optimizer":
        optimizer.load_state_dict(state["optimizer"])
    if fault != "scheduler":
        scheduler.load_state_dict(state["scheduler"])
    start_epoch = 0 if fault == "step-counter" else state["epoch"]
    if fault != "rng":
        torch.set_rng_state(state["rng"])
for epoch in range(start_epoch, EPOCHS):
    model.train()
    for x, y in train:
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.01)
    model.eval()
    with torch.no_grad():
        accuracy = sum(int((model(x).argmax(1) == y).sum()) for x, y in held_out) / SAMPLES
    scheduler.step()
    best = max(best, accuracy)
    state = {
        "epoch": epoch + 1,
        "state_dict": model.state_dict(),
        "best_acc1": best,
        "optimizer": optimizer.state_dict(),
        "scheduler": scheduler.state_dict(),
        "rng": torch.get_rng_state(),
    }
    written = path if fault == "torn" else path.with_suffix(".new")
    torch.save(state, written)
    written.replace(path)
