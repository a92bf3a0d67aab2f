"""Engine fsdp: which time counts as communication."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.testing._internal.distributed.fake_pg import FakeStore

from trainjob.train.engines.fsdp import FsdpEngine


@contextlib.contextmanager
def two_ranks() -> Iterator[None]:
    """Make this process rank 0 of two whose collectives do nothing."""
    distributed: Any = torch.distributed
    distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    try:
        yield
    finally:
        distributed.destroy_process_group()


def test_every_collective_of_a_unit_counts_as_waiting_and_computing_does_not() -> None:
    events = []

    @contextlib.contextmanager
    def waiting() -> Iterator[None]:
        events.append("begins to wait")
        yield
        events.append("has waited")

    class Noting(nn.Linear):
        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            events.append("computes")
            return super().forward(inputs)

    engine: Any = SimpleNamespace(device=torch.device("cpu"), waiting=waiting)
    with two_ranks():
        model: Any = Noting(4, 4)
        fully_shard(model, mesh=init_device_mesh("cpu", (2,)), reshard_after_forward=True)
        FsdpEngine._count_waits(engine, model)
        outputs = model(torch.ones(2, 4))
        assert events == ["begins to wait", "has waited", "computes"]  # gathered
        outputs.sum().backward()
    assert events[3:] == ["begins to wait", "has waited"] * 2  # gathered again, and the gradients reduced
