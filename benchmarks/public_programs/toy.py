"""What programs of torch compute here: a toy. Their loops and the lines that they print are their own."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import account
import torch
import torch.nn.functional as F
from account import truth
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

PAUSE_S = 0.02


def step(*optimizers: Any) -> None:
    """Make one update with all of its optimizers."""
    for optimizer in optimizers:
        optimizer.step()
        optimizer.zero_grad()
    truth["updates"] += 1
    time.sleep(PAUSE_S)


def samples(count: int = 640, batch: int = 16, **more: Any) -> DataLoader:
    return DataLoader(TensorDataset(torch.randn(count, 8), torch.randint(0, 3, (count,))), batch_size=batch, **more)


def random_batch(count: int = 16) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(count, 8), torch.randint(0, 3, (count,))


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))


def evaluated(model: nn.Module, loader: DataLoader) -> tuple[float, float]:
    """Return the mean loss and the share that is right."""
    loss, right = 0.0, 0
    with torch.no_grad():
        for x, y in loader:
            out = model(x)
            loss += F.cross_entropy(out, y, reduction="sum").item()
            right += int((out.argmax(1) == y).sum())
    count = len(loader.dataset)  # type: ignore[arg-type]  # of tensors
    return loss / count, right / count


def backward(model: nn.Module, x: Any, y: Any, share: float = 1.0) -> float:
    loss = F.cross_entropy(model(x), y)
    (loss * share).backward()
    return loss.item()


def update(model: nn.Module, optimizer: Any, x: Any, y: Any) -> float:
    """Make one update with one batch, and return its loss."""
    loss = backward(model, x, y)
    step(optimizer)
    return loss


def run(programs: Mapping[str, Any]) -> None:
    torch.manual_seed(0)
    account.run(programs)
