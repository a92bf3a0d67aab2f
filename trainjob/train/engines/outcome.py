"""The outcome of an update: known at once in a world of one, agreed on with the others while training goes on."""

from __future__ import annotations

from typing import Any, List, Protocol

import torch

from trainjob.train.engines.base import Flags, Outcome, Parts
from trainjob.train.world import Later


class Teller(Protocol):
    """The engine, as far as an outcome needs it."""

    parts: Parts
    metric_names: List[str]
    communication_seconds: float


def as_vector(values: List[Any], dtype: torch.dtype, device: torch.device) -> Any:
    """Return numbers, or tensors of no dimensions, as one vector."""
    if device.type == "cpu":
        return torch.tensor([float(value) for value in values], dtype=dtype)
    return torch.stack([torch.as_tensor(value, dtype=dtype, device=device) for value in values])


class Known:
    """An outcome that no other instance has a part in."""

    def __init__(self, engine: Teller, sums: List[Any], flags: Flags) -> None:
        self._engine, self._sums, self._flags = engine, sums, flags

    def read(self) -> Outcome:
        """Return the means over all micro batches of the update."""
        count = self._engine.parts.counts.micro_batches
        return outcome(self._engine, [float(value) / count for value in self._sums], self._flags)


class Shared:
    """An outcome that is under way: `sums` ÷ `parts` are the means over the global batch."""

    def __init__(self, engine: Teller, sums: Later, parts: int) -> None:
        self._engine, self._sums, self._parts = engine, sums, parts

    def read(self) -> Outcome:
        """Return the means over all micro batches of the update, and the flags that any rank set."""
        *sums, stop, stale = self._sums.read()
        self._engine.communication_seconds += self._sums.waited
        return outcome(self._engine, [value / self._parts for value in sums], Flags(stop > 0, stale > 0))


def outcome(engine: Teller, means: List[float], flags: Flags) -> Outcome:
    """Return the outcome of one update from the means of its loss and metrics."""
    return Outcome([means[0]], [dict(zip(engine.metric_names, means[1:]))], flags)
