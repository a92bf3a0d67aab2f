"""Engine fsdp: which time counts as communication, and which optimizers can be sharded."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.testing._internal.distributed.fake_pg import FakeStore

from trainjob.contract.errors import UserError
from trainjob.train.engines.fsdp import FsdpEngine, refuse_unsharded_state


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
        FsdpEngine.count_waits(engine, model)
        outputs = model(torch.ones(2, 4))
        assert events == ["begins to wait", "has waited", "computes"]  # gathered
        outputs.sum().backward()
    assert events[3:] == ["begins to wait", "has waited"] * 2  # gathered again, and the gradients reduced


def test_an_optimizers_state_is_sharded_as_its_weights_are() -> None:
    def sharded(*shape: int) -> Any:
        tensor: Any = torch.zeros(shape)
        tensor.placements = [SimpleNamespace(is_shard=lambda: True)]
        return tensor

    def looked_at(**state: Any) -> None:
        optimizer: Any = SimpleNamespace(state={model.weight: state})
        refuse_unsharded_state("mine:Own", optimizer, model)

    model = nn.Linear(4, 3)
    looked_at(moment=sharded(3, 4), step=torch.tensor(3.0), count=3)
    for other in (torch.zeros(3, 4), torch.zeros(3), sharded(3, 1)):
        wrong = f"optimizer mine:Own does not allow it: it keeps rows of shape {tuple(other.shape)} for weight weight"
        with pytest.raises(UserError, match=re.escape(wrong)):
            looked_at(rows=other)
