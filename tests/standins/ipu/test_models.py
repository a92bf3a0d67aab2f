"""trainingModel and inferenceModel against ipu.md 4.5, 4.6 and 4.9: results, reduction, losses."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from tests.support.standin_models import Scaled, options_of


@pytest.mark.parametrize(("iterations", "replicas", "accumulation"), [(1, 1, 1), (2, 1, 1), (2, 2, 3), (1, 4, 2)])
@pytest.mark.parametrize("mode", ["All", "EveryN", "Final", "Sum", "Default"])
def test_output_shapes(poptorch: Any, iterations: int, replicas: int, accumulation: int, mode: str) -> None:
    """4.6: factor R·D·G, R·D·G/N, R, R; a scalar becomes a vector only when the factor is above 1."""
    count = iterations * accumulation
    period = count if mode == "EveryN" else None
    options = options_of(poptorch, iterations, replicas, accumulation, (poptorch.OutputMode[mode], period))
    model = Scaled(poptorch)
    training = poptorch.trainingModel(model, options, torch.optim.SGD(model.parameters(), lr=0.0))
    outputs, loss = training(torch.ones(count * replicas * 5, 3))
    factor = {"All": count * replicas}.get(mode, replicas)
    assert outputs.shape == (factor * 5, 3)
    assert loss.shape == ((factor,) if factor > 1 else ())


def test_which_micro_batches_come_back(poptorch: Any) -> None:
    """4.6: Final is the last iteration's last micro batch; Sum is over D and G and not over replicas."""
    inputs = torch.arange(8.0).view(8, 1)  # D 2, R 2, G 2, one sample each

    def outputs(mode: Any, period: Any = None) -> Any:
        model = Scaled(poptorch)
        options = options_of(poptorch, 2, 2, 2, (poptorch.OutputMode[mode], period))
        training = poptorch.trainingModel(model, options, torch.optim.SGD(model.parameters(), lr=0.0))
        return training(inputs)[0].flatten().tolist()

    assert outputs("All") == list(range(8))
    assert outputs("Final") == [5, 7]
    assert outputs("Sum") == [0 + 1 + 4 + 5, 2 + 3 + 6 + 7]
    assert outputs("EveryN", 2) == [1, 3, 5, 7]


def test_inference_gives_everything_and_takes_no_accumulation(poptorch: Any) -> None:
    """4.6: inference default as All, G must be 1."""
    inference = poptorch.inferenceModel(nn.Linear(3, 2).eval(), options_of(poptorch, 3, 2))
    assert inference(torch.ones(12, 3)).shape == (12, 2)
    with pytest.raises(poptorch.Error, match=r"gradientAccumulation to 1 or leave it .* Use poptorch.Options"):
        poptorch.inferenceModel(nn.Linear(3, 2).eval(), options_of(poptorch, accumulation=2))(torch.ones(2, 3))


def test_a_batch_that_does_not_divide_is_refused(poptorch: Any) -> None:
    """4.4: "Invalid batch dimension"."""
    model = Scaled(poptorch)
    training = poptorch.trainingModel(model, options_of(poptorch, 2, 2, 3))
    with pytest.raises(poptorch.Error, match="Invalid batch dimension"):
        training(torch.ones(13, 1))


def test_inputs_must_stay_as_compiled(poptorch: Any) -> None:
    """The compiled graph has fixed shapes."""
    inference = poptorch.inferenceModel(nn.Linear(3, 2).eval(), options_of(poptorch))
    inference(torch.ones(4, 3))
    with pytest.raises(poptorch.Error, match="Shape mismatch for input"):
        inference(torch.ones(5, 3))


@pytest.mark.parametrize(("reduction", "factor"), [("Sum", 12.0), ("Mean", 1.0)])
def test_sum_is_mean_times_accumulation_and_replicas(poptorch: Any, reduction: str, factor: float) -> None:
    """4.9: with Sum the effective learning rate is G × replicas times Mean's."""
    model = Scaled(poptorch)
    options = options_of(poptorch, 1, 4, 3, reduction=reduction)
    training = poptorch.trainingModel(model, options, torch.optim.SGD(model.parameters(), lr=0.01))
    training(torch.ones(12, 1))
    assert model.weight.item() == pytest.approx(1.0 - 0.01 * factor)


def test_the_mean_is_the_default(poptorch: Any) -> None:
    """4.1."""
    model = Scaled(poptorch)
    options = poptorch.Options().replicationFactor(2).showCompilationProgressBar(False)
    poptorch.trainingModel(model, options, torch.optim.SGD(model.parameters(), lr=0.5))(torch.tensor([[1.0], [3.0]]))
    assert model.weight.item() == pytest.approx(1.0 - 0.5 * 2.0)


def test_device_iterations_are_updates(poptorch: Any) -> None:
    """2 of design and 4.4: each iteration ends with a step, and the next starts from its weights."""
    model = Scaled(poptorch)
    options = options_of(poptorch, 3, mode=(poptorch.OutputMode.All,))
    training = poptorch.trainingModel(model, options, torch.optim.SGD(model.parameters(), lr=0.5))
    outputs, _ = training(torch.ones(3, 1))
    assert outputs.flatten().tolist() == [1.0, 0.5, 0.0]
    assert model.weight.item() == -0.5


def test_no_optimizer_is_sgd_with_a_hundredth(poptorch: Any) -> None:
    """4.5."""
    model = Scaled(poptorch)
    poptorch.trainingModel(model, options_of(poptorch))(torch.ones(1, 1))
    assert model.weight.item() == pytest.approx(0.99)


def test_the_learning_rate_changes_by_set_optimizer_alone(poptorch: Any) -> None:
    """4.7: otherwise the IPU keeps the old value."""
    model = Scaled(poptorch)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    training = poptorch.trainingModel(model, options_of(poptorch), optimizer)
    training(torch.ones(1, 1))
    optimizer.param_groups[0]["lr"] = 0.25
    training(torch.ones(1, 1))
    assert model.weight.item() == 0.0
    training.setOptimizer(optimizer)
    training(torch.ones(1, 1))
    assert model.weight.item() == -0.25


def test_buffers_are_each_replicas_own(poptorch: Any) -> None:
    """4.8: not kept in sync across replicas; the host sees the first replica's."""

    class Normalised(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.BatchNorm1d(1, momentum=1.0)

        def forward(self, values: Any) -> Any:
            return poptorch.identity_loss(self.norm(values), "sum")

    model = Normalised()
    training = poptorch.trainingModel(model, options_of(poptorch, 1, 2), torch.optim.SGD(model.parameters(), lr=0.1))
    training(torch.tensor([[1.0], [3.0], [11.0], [13.0]]))
    assert model.norm.running_mean.item() == 2.0
    assert model.norm.num_batches_tracked.item() == 1


def test_the_mode_is_that_of_compiling(poptorch: Any) -> None:
    """4.5: a graph is traced once; a model made to evaluate afterwards still trains."""

    class Dropping(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(63))

        def forward(self, values: Any) -> Any:
            return poptorch.identity_loss(nn.functional.dropout(self.weight * values, 0.5, self.training), "sum")

    model = Dropping()
    training = poptorch.trainingModel(model, options_of(poptorch), torch.optim.SGD(model.parameters(), lr=0.0))
    training(torch.ones(1, 63))
    model.eval()
    assert training(torch.ones(1, 63)).item() != 63.0


LOSSES: dict[str, Any] = {
    "l1_loss": lambda loss, x: loss(x, torch.zeros_like(x)),
    "binary_cross_entropy": lambda loss, x: loss(x.sigmoid(), torch.ones_like(x)),
    "kl_div": lambda loss, x: loss(x.log_softmax(1), torch.full_like(x, 0.5), reduction="batchmean"),
    "poisson_nll_loss": lambda loss, x: loss(x, torch.ones_like(x)),
    "hinge_embedding_loss": lambda loss, x: loss(x, torch.ones_like(x)),
    "margin_ranking_loss": lambda loss, x: loss(x, x * 2, torch.ones_like(x)),
    "triplet_margin_loss": lambda loss, x: loss(x, x * 2, x * 3),
    "cross_entropy": lambda loss, x: loss(x, torch.zeros(len(x), dtype=torch.long)),
}


@pytest.mark.parametrize("name", sorted(LOSSES))
def test_a_loss_function_that_was_taken_before(poptorch: Any, name: str) -> None:
    """`from torch.nn.functional import l1_loss`: the gradient is that of the function, reduction and all."""

    class Taken(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.tensor([0.3, 0.7]))
            self.loss = getattr(nn.functional, name)

        def forward(self, values: Any) -> Any:
            return LOSSES[name](self.loss, self.weight * values)

    torch.manual_seed(5)
    model, values = Taken(), torch.randn(3, 2)
    (gradient,) = torch.autograd.grad(model(values), model.weight)
    before = model.weight.detach().clone()
    loss = poptorch.trainingModel(model, options_of(poptorch), torch.optim.SGD(model.parameters(), lr=0.5))(values)
    assert loss.dim() == 0
    assert torch.allclose(model.weight, before - 0.5 * gradient)


def test_a_loss_that_depends_on_no_weight(poptorch: Any) -> None:
    class Apart(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(2))

        def forward(self, values: Any) -> Any:
            return poptorch.identity_loss(values, "mean")

    model = Apart()
    training = poptorch.trainingModel(model, options_of(poptorch), torch.optim.SGD(model.parameters(), lr=0.5))
    assert training(torch.full((2,), 3.0)).item() == 3.0
    assert model.weight.tolist() == [1.0, 1.0]
