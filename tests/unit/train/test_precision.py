"""Sixteen bits on a CPU: rounded where a GPU would round, exact weights underneath."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from trainjob.contract.errors import UserError
from trainjob.train.engines.precision import BY_NAME, Autocast, build, floating_type, rounded

CPU = torch.device("cpu")


class Values(nn.Module):
    """Passes on values that tell whether they were rounded."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 4)
        self.second = nn.Linear(4, 2)

    def forward(self, inputs: Any) -> Any:
        return self.second(torch.tanh(self.first(inputs))) / 3


def holds(tensor: Any, kind: Any) -> bool:
    return torch.equal(tensor.to(kind).to(tensor.dtype), tensor)


@pytest.fixture
def model() -> Any:
    torch.manual_seed(0)
    return Values()


@pytest.mark.parametrize("precision", ["16.16", "bf16"])
def test_parameters_and_outputs_are_what_sixteen_bits_can_hold(model: Any, precision: str) -> None:
    kind, seen = BY_NAME[precision].layers, []
    numerics = build(precision, model, CPU)
    model.first.register_forward_hook(lambda module, inputs, output: seen.append(output))
    inputs = numerics.inputs(torch.rand(5, 3))
    with numerics.during_update(), numerics.during_forward():
        outputs = model(inputs)
        assert all(holds(parameter, kind) for parameter in model.parameters())
    assert holds(inputs, kind)
    assert holds(seen[0], kind)
    assert holds(outputs, kind)
    assert outputs.dtype is torch.float32
    assert not holds(model.first.weight, kind)


def test_only_inputs_are_rounded_where_the_model_has_32_bits(model: Any) -> None:
    numerics = build("16.32", model, CPU)
    assert holds(numerics.inputs(torch.rand(5, 3)), torch.float16)
    with numerics.during_update(), numerics.during_forward():
        assert not holds(model.first.weight, torch.float16)
        assert not holds(model(torch.rand(5, 3)), torch.float16)


@pytest.mark.parametrize("precision", ["32.32", "64.64"])
def test_full_precision_changes_nothing(model: Any, precision: str) -> None:
    model = model.to(floating_type(precision))
    inputs = torch.rand(5, 3, dtype=floating_type(precision))
    expected = model(inputs)
    numerics = build(precision, model, CPU)
    with numerics.during_update(), numerics.during_forward():
        assert torch.equal(model(numerics.inputs(inputs)), expected)


def test_a_step_changes_the_exact_weights_by_the_rounded_ones_gradient(model: Any) -> None:
    numerics = build("16.16", model, CPU)
    before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    inputs = numerics.inputs(torch.rand(5, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)  # less than 16 bits could tell apart
    with numerics.during_update():
        with numerics.during_forward():
            loss = model(inputs).pow(2).sum()
        numerics.scaled(loss).backward()
    numerics.step(optimizer)
    for name, weight in model.named_parameters():
        assert torch.equal(weight, before[name] - 1e-6 * weight.grad)
        assert not torch.equal(weight, before[name])


def test_gradients_pass_through_the_rounding_as_they_are(model: Any) -> None:
    # The rounded parameters' own gradient: what a plain model with those parameters has, outputs aside.
    numerics = build("16.16", model, CPU)
    plain = Values()
    plain.load_state_dict({name: value.half().float() for name, value in model.state_dict().items()})
    inputs = torch.rand(5, 3).half().float()
    with numerics.during_update():
        model(inputs).sum().backward()
    plain(inputs).sum().backward()
    for weight, other in zip(model.parameters(), plain.parameters(), strict=True):
        assert weight.grad is not None
        assert other.grad is not None
        assert torch.allclose(weight.grad, other.grad, rtol=1e-2)


def test_a_forward_that_fails_leaves_the_exact_weights(model: Any) -> None:
    numerics, before = build("16.16", model, CPU), model.first.weight.detach().clone()
    with pytest.raises(ValueError, match="no"), numerics.during_update():
        raise ValueError("no")
    assert torch.equal(model.first.weight, before)


def test_too_large_a_value_overflows_as_on_the_device() -> None:
    assert rounded(torch.tensor([7e4]), torch.float16, torch.float32).isinf().all()
    assert rounded(torch.tensor([7e4]), torch.bfloat16, torch.float32).isfinite().all()
    numbers = (torch.tensor([1]), {"a": torch.tensor([0.1])})
    kept, changed = rounded(numbers, torch.float16, torch.float32)
    assert kept.dtype is torch.int64
    assert changed["a"].item() == pytest.approx(0.1, abs=1e-4)
    assert changed["a"].item() != 0.1


def test_clipping_comes_before_the_step(model: Any) -> None:
    numerics, order = build("16.16", model, CPU), []

    class Optimizer:
        def step(self) -> None:
            order.append("step")

    optimizer: Any = Optimizer()
    numerics.step(optimizer, lambda: order.append("clip"))
    assert order == ["clip", "step"]


def test_an_unknown_precision_is_named(model: Any) -> None:
    with pytest.raises(UserError, match=r"precision 8.8 .* choose one of 64.64, 32.32, 16.32, 16.16, bf16"):
        build("8.8", model, CPU)


# -- what a GPU does, on torch's CPU autocast ---------------------------------------------------


SCALE = 128.0  # torch's own first one overflows for a few updates, as it is meant to


def autocasting() -> Any:
    numerics = Autocast(BY_NAME["16.16"], CPU)
    numerics.load({"scale": torch.tensor(SCALE), "updates_at_scale": torch.tensor(0)})
    return numerics


@pytest.fixture
def autocast() -> Any:
    return autocasting()


def update(numerics: Any, model: Any, inputs: Any, optimizer: Any, clip: Any = None) -> None:
    optimizer.zero_grad()
    with numerics.during_update():
        with numerics.during_forward():
            loss = model(numerics.inputs(inputs)).pow(2).mean()
        numerics.scaled(loss).backward()
    numerics.step(optimizer, clip)


def test_the_scale_is_gone_from_the_gradients_where_they_are_clipped(model: Any, autocast: Any) -> None:
    seen, inputs = [], torch.rand(5, 3)
    model(inputs).pow(2).mean().backward()
    expected = model.first.weight.grad.clone()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    update(autocast, model, inputs, optimizer, lambda: seen.append(model.first.weight.grad.clone()))
    assert torch.allclose(seen[0], expected, rtol=2e-2, atol=1e-4)


def test_an_update_that_overflows_is_left_out_and_the_scale_halved(model: Any, autocast: Any) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def overflow() -> None:
        model.second.weight.grad[0, 0] = float("inf")

    before = model.first.weight.detach().clone()
    with_overflow(autocast, model, optimizer, overflow)
    assert torch.equal(model.first.weight, before)
    assert autocast.state()["scale"].item() == SCALE / 2
    update(autocast, model, torch.rand(5, 3), optimizer)
    assert not torch.equal(model.first.weight, before)


def with_overflow(numerics: Any, model: Any, optimizer: Any, overflow: Any) -> None:
    with numerics.during_forward():
        loss = model(torch.rand(5, 3)).pow(2).mean()
    numerics.scaled(loss).backward()
    overflow()
    numerics.step(optimizer)


def test_the_scale_goes_on_where_it_was(model: Any, autocast: Any) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        update(autocast, model, torch.rand(5, 3), optimizer)
    state = autocast.state()
    other = Autocast(BY_NAME["16.16"], CPU)
    other.load(state)
    update(other, model, torch.rand(5, 3), optimizer)
    update(autocast, model, torch.rand(5, 3), optimizer)
    assert {name: value.item() for name, value in other.state().items()} == {
        name: value.item() for name, value in autocast.state().items()
    }
    assert other.state()["updates_at_scale"].item() == 4
    other.load({})  # a checkpoint of an engine without a scaler
