"""--compile and --memory-format: what is compiled, when, and what is stored otherwise."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from tests.support.runs_at_work import settings
from trainjob.contract.errors import UserError
from trainjob.train import optimizers
from trainjob.train.engines.compiling import channels_last, compile_modules, store_channels_last
from trainjob.train.world import RankPlace, World

WORLD = World(RankPlace(0, 0, 1, torch.device("cpu")))


def test_a_module_is_compiled_while_it_trains_and_not_while_it_is_evaluated(monkeypatch: pytest.MonkeyPatch) -> None:
    model = nn.Linear(2, 2)
    names = list(model.state_dict())

    def doubling(forward: Any) -> Any:
        return lambda *inputs: 2 * forward(*inputs)

    monkeypatch.setattr(torch, "compile", doubling)
    inputs = torch.ones(1, 2)
    expected = model(inputs)
    compile_modules([model], WORLD)
    assert torch.equal(model(inputs), 2 * expected)
    assert torch.equal(model(inputs), 2 * expected)
    assert torch.equal(model.eval()(inputs), expected)
    assert list(model.state_dict()) == names


def test_a_torch_that_cannot_compile_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "__version__", "1.13.1")
    with pytest.raises(UserError, match=r"--compile needs torch 2\.1 or newer, and this is torch 1\.13\.1"):
        compile_modules([nn.Linear(2, 2)], WORLD)


def test_only_what_has_four_dimensions_is_stored_channels_last() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(4, 2))
    before = [weight.detach().clone() for weight in model.parameters()]
    store_channels_last(model)
    assert [weight.stride()[-1] for weight in model.parameters()] == [3, 1, 1, 1]
    assert all(torch.equal(weight, kept) for weight, kept in zip(model.parameters(), before, strict=True))
    images = torch.rand(2, 3, 4, 4)
    assert channels_last(images).is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_every_implementation_of_an_optimizer_makes_the_same_steps(optimizer: str) -> None:
    weights = []
    for implementation, flags in (("for-loop", (False, None)), ("foreach", (True, None)), ("fused", (None, True))):
        weight = nn.Parameter(torch.arange(6, dtype=torch.float64).reshape(2, 3))
        job = settings(optimizer=optimizer, optimizer_implementation=implementation)
        built = optimizers.build([{"params": [weight]}], job)
        assert (built.defaults["foreach"], built.defaults["fused"]) == flags
        for _ in range(3):
            weight.grad = 0.1 * weight.detach() + 1
            built.step()
        weights.append(weight.detach())
    torch.testing.assert_close(weights[1], weights[0], rtol=1e-12, atol=0)
    torch.testing.assert_close(weights[2], weights[0], rtol=1e-12, atol=0)


def test_an_implementation_that_cannot_take_the_gradients_is_refused() -> None:
    job = settings(optimizer="sgd", optimizer_implementation="fused")
    with pytest.raises(UserError, match=r"sgd steps in its fused implementation here: some gradients .* are sparse"):
        optimizers.build([{"params": [nn.Parameter(torch.ones(2))]}], job, sparse=True)
