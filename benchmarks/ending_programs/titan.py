"""A loop as torchtitan's: FSDP, torch.distributed.checkpoint each so many steps, and a start from the newest of them."""

import logging
import os

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from small import UPDATES, Small, numbers, sums
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard

logging.basicConfig(level=logging.INFO, format="[titan] %(asctime)s - %(levelname)s - %(message)s")
logger = logging.getLogger()
dist.init_process_group("gloo")
model = nn.Sequential(nn.Linear(8, 8), Small())
for layer in model:
    fully_shard(layer)
fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)


class State:
    def __init__(self):
        self.step = 0

    def state_dict(self):
        weights, moments = get_state_dict(model, optimizer)
        return {"model": weights, "optimizer": moments, "step": self.step}

    def load_state_dict(self, saved):
        set_state_dict(model, optimizer, model_state_dict=saved["model"], optim_state_dict=saved["optimizer"])
        self.step = saved["step"]


state, folder = State(), "outputs/checkpoint"
complete = [
    int(name.removeprefix("step-"))
    for name in (os.listdir(folder) if os.path.isdir(folder) else [])
    if os.path.exists(os.path.join(folder, name, ".metadata"))
]
if complete:
    logger.info("Loading the checkpoint at step %d", max(complete))
    dcp.load({"app": state}, checkpoint_id=f"{folder}/step-{max(complete)}")
while state.step < UPDATES:
    state.step += 1
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(numbers[:8]), sums[:8])
    loss.backward()
    optimizer.step()
    if state.step % 10 == 0 and dist.get_rank() == 0:
        logger.info("step: %2d  loss: %7.4f", state.step, loss.item())
    if state.step % 50 == 0:
        dcp.save({"app": state}, checkpoint_id=f"{folder}/step-{state.step}")
dist.destroy_process_group()
