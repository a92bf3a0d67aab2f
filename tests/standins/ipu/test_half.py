"""float16 as PopTorch's user guide has it ("Half / float16 support"): what saturates, and what becomes float16."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

from tests.support.standin_models import options_of

LARGEST = 65504.0


class Twice(nn.Module):
    def forward(self, values: Any) -> Any:
        return values * 2


def inference(poptorch: Any, model: nn.Module, **more: Any) -> Any:
    return poptorch.inferenceModel(model.eval(), options_of(poptorch, **more))


def test_overflow_saturates(poptorch: Any) -> None:
    """Graphcore's guides: not a number on overflow is optional, and off by default."""
    assert inference(poptorch, Twice())(torch.tensor([60000.0, -60000.0]).half()).tolist() == [LARGEST, -LARGEST]


def test_what_is_between_saturates_too(poptorch: Any) -> None:
    class Back(nn.Module):
        def forward(self, values: Any) -> Any:
            return values * 4 / 4

    assert inference(poptorch, Back())(torch.tensor([30000.0]).half()).tolist() == [LARGEST / 4]


def test_accumulators_of_float16_saturate_and_train(poptorch: Any) -> None:
    """The lessons' program: large inputs, loss scaling 1,000, float16 accumulators."""

    class Lesson(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(8, 4)

        def forward(self, images: Any, labels: Any) -> Any:
            outputs = self.layer((images.half() - 0.485) / 0.229)
            return poptorch.identity_loss(nn.functional.cross_entropy(outputs, labels, reduction="sum"), "sum")

    torch.manual_seed(1)
    model = Lesson().half()
    optimizer = poptorch.optim.AdamW(
        model.parameters(),
        lr=0.001,
        loss_scaling=1000,
        accum_type=torch.float16,
        first_order_momentum_accum_type=torch.float16,
        second_order_momentum_accum_type=torch.float32,
    )
    options = options_of(poptorch, 1, 1, 8, reduction="Sum")
    training = poptorch.trainingModel(model, options, optimizer)
    images = torch.randint(0, 256, (64, 8), dtype=torch.uint8)
    labels = torch.arange(64) % 4
    losses = [float(training(images, labels)) for _ in range(12)]
    assert all(torch.isfinite(weight).all() for weight in model.parameters())
    assert losses[-1] < losses[0]


@pytest.mark.parametrize(
    ("behaviour", "traces", "dtype"),
    [
        (None, False, torch.float32),
        (None, True, torch.float16),
        ("FloatDowncastToHalf", False, torch.float16),
        ("HalfUpcastToFloat", True, torch.float32),
    ],
)
def test_what_a_mix_becomes(poptorch: Any, behaviour: str | None, traces: bool, dtype: torch.dtype) -> None:
    """halfFloatCasting: "with tracing disabled, mixed precision casting always follows PyTorch's scheme"."""

    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(2))

        def forward(self, values: Any) -> Any:
            return values * self.weight

    options = options_of(poptorch)
    options.Jit.traceModel(traces)
    if behaviour is not None:
        options.Precision.halfFloatCasting(poptorch.HalfFloatCastingBehavior[behaviour])
    assert poptorch.inferenceModel(Mixed().eval(), options)(torch.ones(2).half()).dtype is dtype


@pytest.mark.parametrize("layer", [nn.Linear(4, 2), nn.Conv1d(4, 2, 1), nn.BatchNorm1d(4)])
def test_layers_give_the_type_that_they_are_given(poptorch: Any, layer: Any) -> None:
    """Whatever type their weights have."""
    values = torch.ones(1, 4, 1) if isinstance(layer, nn.Conv1d) else torch.ones(1, 4)
    for weights in (torch.float32, torch.float16):
        for dtype in (torch.float32, torch.float16):
            model = copy.deepcopy(layer).to(weights).eval()
            assert poptorch.inferenceModel(model)(values.to(dtype)).dtype is dtype


def test_what_is_written_to_keeps_its_type(poptorch: Any) -> None:
    class Written(nn.Module):
        def forward(self, values: Any) -> Any:
            values.mul_(torch.tensor([1.0001, 2.0]))
            return (values - 1) * 1024

    found = inference(poptorch, Written())(torch.ones(2).half())
    assert (found.dtype, found.tolist()) == (torch.float16, [0.0, 1024.0])


def test_parameters_of_float32_are_updated_in_float32(poptorch: Any) -> None:
    """The guide's second way: float32 weights with float16 inputs; small updates are not lost."""

    class Small(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.tensor([1.0]))

        def forward(self, values: Any) -> Any:
            return poptorch.identity_loss((values * self.weight).sum(), "sum")

    model = Small()
    training = poptorch.trainingModel(model, options_of(poptorch), torch.optim.SGD(model.parameters(), lr=1e-5))
    training(torch.ones(1).half())
    assert model.weight.item() == pytest.approx(1 - 1e-5, abs=1e-7)
    assert model.weight.dtype is torch.float32


def test_results_have_the_type_that_they_were_computed_in(poptorch: Any) -> None:
    class Types(nn.Module):
        def forward(self, half: Any, single: Any) -> Any:
            return half + 1, single + 1, half.float() + single, single.half(), half.argmax()

    found = inference(poptorch, Types())(torch.ones(2).half(), torch.ones(2))
    assert [one.dtype for one in found] == [torch.float16, torch.float32, torch.float32, torch.float16, torch.int32]


def test_the_model_sees_its_types(poptorch: Any) -> None:
    seen = []

    class Asks(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(2, 2)

        def forward(self, values: Any) -> Any:
            seen.append((values.dtype, self.layer(values).dtype, values.shape, values.view(1, 2).dtype))
            values.add_(1)
            return values[:1]

    assert inference(poptorch, Asks().half())(torch.ones(2).half()).tolist() == [2.0]
    assert set(seen) == {(torch.float16, torch.float16, torch.Size([2]), torch.float16)}


def test_layers_of_a_half_model_keep_working(poptorch: Any) -> None:
    model = nn.Sequential(
        nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(inplace=True), nn.Flatten(), nn.LayerNorm(8), nn.Linear(8, 2)
    )
    found = inference(poptorch, model.half())(torch.ones(3, 1, 4, 4).half())
    assert (found.dtype, tuple(found.shape)) == (torch.float16, (3, 2))


class Makes(nn.Module):
    """Makes float16 tensors of its own, as masks and hidden states are made."""

    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(4, 3)
        self.mask = torch.full((3, 3), 0.5).half()

    def forward(self, values: Any) -> Any:
        hidden, _ = self.gru(values)
        return hidden @ self.mask @ torch.eye(3, dtype=torch.float16) @ torch.eye(3).half()


def test_float16_that_forward_makes_can_be_multiplied(poptorch: Any) -> None:
    torch.manual_seed(1)
    model = Makes()
    values = torch.randn(2, 1, 4)
    expected = model.gru(values)[0] @ model.mask.float()
    found = inference(poptorch, model.half())(values.half())
    assert found.dtype is torch.float16
    assert torch.allclose(found.float(), expected, atol=2e-3)


@pytest.mark.parametrize("forward", [lambda x: x / 0, lambda x: (x - 2).log(), lambda x: (x * 70000).half()])
def test_floating_point_exceptions_are_raised_when_enabled(poptorch: Any, forward: Any) -> None:
    """Precision.enableFloatingPointExceptions: "raise RuntimeError on floating point exception"."""

    class Odd(nn.Module):
        def forward(self, values: Any) -> Any:
            return forward(values)

    options = options_of(poptorch)
    options.Precision.enableFloatingPointExceptions(True)
    with pytest.raises(RuntimeError, match="floating point exception"):
        poptorch.inferenceModel(Odd().eval(), options)(torch.ones(1))
    inference(poptorch, Odd())(torch.ones(1))


def test_a_wider_type_that_is_asked_for(poptorch: Any) -> None:
    class Wider(nn.Module):
        def forward(self, inputs: Any) -> tuple[Any, ...]:
            return torch.softmax(inputs, -1, dtype=torch.float32), inputs.sum(dtype=torch.float32), inputs.double()

    results = poptorch.inferenceModel(Wider().eval())(torch.ones(2, 2).half())
    assert [result.dtype for result in results] == [torch.float32] * 3


@pytest.mark.parametrize("momentum", [0.1, None])
def test_inference_leaves_running_statistics_also_in_training_mode(poptorch: Any, momentum: Any) -> None:
    class Normalised(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            norm: Any = nn.BatchNorm2d(2, momentum=momentum)
            norm.running_mean += torch.tensor([-2.0, 3.0])
            self.norm = norm

        def forward(self, values: Any) -> Any:
            return self.norm(values), self.norm.running_mean, self.norm.running_var

    model = Normalised()
    model.norm.half()
    inference = poptorch.inferenceModel(model, options_of(poptorch, 2))
    values, mean, variance = inference(torch.arange(16.0).reshape(2, 2, 2, 2).half())
    assert values.float().mean().abs() < 0.01  # by the statistics of the batch
    assert mean.tolist() == [-2, 3] * 2
    assert variance.tolist() == [1, 1] * 2
    assert model.norm.momentum is momentum
