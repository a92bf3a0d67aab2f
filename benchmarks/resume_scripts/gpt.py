"""A loop as nanoGPT has it, without a DataLoader, that resumes or has the fault that `--fault` names."""

import argparse
import math
import os
import time

import numpy as np
import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--fault", default="")
parser.add_argument("--right", default="", help="noise: kernels that are not deterministic")
parser.add_argument("--unseeded", action="store_true")
options = parser.parse_args()
fault = options.fault
LETTERS, BLOCK, BATCH, STEPS, EVERY, OUT = 32, 16, 8, 60, 10, "out"
os.makedirs(OUT, exist_ok=True)
path = os.path.join(OUT, "ckpt.pt")
if not options.unseeded:
    torch.manual_seed(1337)
with open("train.bin", "wb") as stream:
    stream.write(np.random.default_rng(3).integers(0, LETTERS, 5000).astype(np.uint16).tobytes())


def get_batch():
    data = np.memmap("train.bin", dtype=np.uint16, mode="r")
    places = torch.randint(len(data) - BLOCK - 1, (BATCH,))
    parts = [torch.from_numpy(data[at : at + BLOCK + 1].astype(np.int64)) for at in places.tolist()]
    return torch.stack([part[:-1] for part in parts]), torch.stack([part[1:] for part in parts])


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(LETTERS, 16)
        self.layers = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Dropout(0.1), nn.Linear(32, LETTERS))

    def forward(self, letters, targets):
        logits = self.layers(self.embedding(letters))
        return logits, nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def learning_rate(number):
    return 1e-3 + 1e-2 * min(1.0, (number + 1) / 10) * 0.5 * (1 + math.cos(math.pi * number / STEPS))


model = Net()
scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=7)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, betas=(0.9, 0.95))
iter_num = 0
if os.path.exists(path):
    state = torch.load(path)
    model.load_state_dict(state["model"])
    if fault != "optimizer":
        optimizer.load_state_dict(state["optimizer"])
    if fault != "scaler":
        scaler.load_state_dict(state["scaler"])
    iter_num = 0 if fault == "step-counter" else state["iter_num"]
    if fault != "rng":
        torch.set_rng_state(state["rng"])

while iter_num < STEPS:
    if iter_num and iter_num % EVERY == 0:
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "scaler": scaler.state_dict()}
        written = path if fault == "torn" else path + ".new"
        torch.save({**state, "iter_num": iter_num, "rng": torch.get_rng_state()}, written)
        os.replace(written, path)
    for group in optimizer.param_groups:
        group["lr"] = learning_rate(iter_num)
    _, loss = model(*get_batch())
    scaler.scale(loss).backward()
    if options.right == "noise":
        for weight in model.parameters():
            weight.grad *= 1 + 1e-6 * torch.from_numpy(np.random.default_rng().standard_normal(weight.shape)).float()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad(set_to_none=True)
    time.sleep(0.01)
    iter_num += 1
