"""Loaders of the stand-in for poptorch."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.data import TensorDataset


def numbers(count: Any) -> Any:
    return TensorDataset(torch.arange(count))


def options_of(
    poptorch: Any,
    iterations: int = 1,
    replicas: int = 1,
    accumulation: int = 1,
    process: int = 0,
    processes: int = 1,
    seed: Any = None,
) -> Any:
    options = poptorch.Options().deviceIterations(iterations).replicationFactor(replicas)
    options.Training.gradientAccumulation(accumulation)
    options.Distributed.configureProcessId(process, processes)
    return options if seed is None else options.randomSeed(seed)


def batches(loader: Any) -> list[Any]:
    return [batch.tolist() for (batch,) in loader]
