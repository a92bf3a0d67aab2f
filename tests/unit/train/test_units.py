"""Which modules of a model are its units, and what is refused."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from torch import nn

from trainjob.contract.errors import UserError
from trainjob.records.software import is_older
from trainjob.train.engines.units import recompute, units_of
from trainjob.train.tasks.resnets import Cifar10ResNet50


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))


class Net(nn.Module):
    def __init__(self, blocks: int) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(3, 2), nn.Embedding(3, 2)
        self.blocks = nn.ModuleList(Block() for _ in range(blocks))


def units(model: nn.Module, **task: Any) -> list[str]:
    return units_of(SimpleNamespace(**task), model)


def test_repeated_blocks_are_units_and_their_layers_are_not() -> None:
    assert units(Net(3)) == ["blocks.0", "blocks.1", "blocks.2"]
    assert len(units(Cifar10ResNet50().build_model())) == 3 + 4 + 6 + 3


def test_layers_are_units_where_there_are_no_blocks() -> None:
    assert units(nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.ReLU(), nn.Linear(2, 2))) == ["0", "3"]


def test_a_task_names_its_units() -> None:
    assert units(Net(2), shard_units=["tokens", "blocks.*.inner"]) == ["tokens", "blocks.0.inner", "blocks.1.inner"]
    with pytest.raises(UserError, match=r"names block\.\*, and no module with parameters has that name; there are: "):
        units(Net(2), shard_units="block.*")


def test_a_model_without_units_is_refused() -> None:
    with pytest.raises(UserError, match="none of the 2 modules does") as caught:
        units(nn.Sequential(nn.Linear(2, 2)))
    assert "shard_units" in str(caught.value)


def test_recomputing_changes_neither_names_nor_gradients() -> None:
    import torch

    model = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5), nn.Linear(2, 2))
    names = list(model.state_dict())
    gradients = []
    for again in (False, True):
        if again:
            recompute(model, ["0", "2"])
        model.zero_grad()
        torch.manual_seed(1)
        model(torch.ones(4, 2)).sum().backward()
        weight = model[0].weight
        assert isinstance(weight, torch.Tensor)
        assert weight.grad is not None
        gradients.append(weight.grad.clone())
    assert torch.equal(*gradients)
    assert list(model.state_dict()) == names


@pytest.mark.parametrize(
    ("version", "older"), [("2.5.1+cu124", True), ("2.6.0", False), ("2.10", False), ("unknown", False), ("1.10", True)]
)
def test_versions_are_numbers(version: str, older: bool) -> None:
    assert is_older(version, "2.6") == older
