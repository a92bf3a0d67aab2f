"""Statements of PopTorch's user guide and of its docstrings that programs written from them alone found wrong here."""

from __future__ import annotations

import importlib
from typing import Any

import pytest
import torch
from torch import nn

from tests.support.standin_models import Scaled, options_of


def sgd(model: nn.Module, rate: float = 0.5) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=rate)


# -- losses --------------------------------------------------------------------------------------


class Fits(nn.Module):
    """One weight; `loss` makes the outputs of the weighted inputs and the target."""

    def __init__(self, loss: Any) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(1.0))
        self.loss = loss

    def forward(self, inputs: Any, target: Any) -> Any:
        return self.loss(inputs * self.weight, target)


def trained(poptorch: Any, loss: Any) -> float:
    model = Fits(loss)
    poptorch.trainingModel(model, options_of(poptorch), sgd(model))(torch.full((1, 1), 2.0), torch.zeros(1, 1))
    return model.weight.item()


def test_a_metric_beside_the_loss_is_no_second_loss(poptorch: Any) -> None:
    """Custom losses: only loss functions and identity_loss make losses, whatever else is returned."""
    mse = nn.functional.mse_loss
    assert trained(poptorch, lambda out, target: (mse(out, target), out.abs().mean())) == 1.0 - 0.5 * 8.0
    assert trained(poptorch, lambda out, target: (out.abs().mean(), nn.MSELoss()(out, target))) == 1.0 - 0.5 * 8.0
    # Imported by its name before the model was traced.
    assert trained(poptorch, mse) == 1.0 - 0.5 * 8.0


def test_a_custom_loss_must_be_marked(poptorch: Any) -> None:
    """ "when creating a custom loss, the final loss must be marked explicitly using identity_loss"."""

    def custom(out: Any, target: Any) -> Any:
        return ((out - target) ** 2).mean()

    with pytest.raises(poptorch.Error, match="Couldn't find a loss in graph"):
        trained(poptorch, custom)
    assert trained(poptorch, lambda *both: poptorch.identity_loss(custom(*both), "none")) == 1.0 - 0.5 * 8.0


def test_what_follows_a_loss_function_must_be_marked(poptorch: Any, capfd: pytest.CaptureFixture[str]) -> None:
    """The backward pass begins at the loss function: what is computed from its result changes no gradient."""
    assert trained(poptorch, lambda *both: nn.functional.mse_loss(*both) * 10) == 1.0 - 0.5 * 8.0
    assert "does not return its loss as such" in capfd.readouterr().err
    marked = trained(poptorch, lambda *both: poptorch.identity_loss(nn.functional.mse_loss(*both) * 10, "none"))
    assert marked == 1.0 - 0.5 * 80.0
    assert "does not return its loss as such" not in capfd.readouterr().err


def test_two_loss_functions_need_a_final_loss(poptorch: Any) -> None:
    """Multiple losses: "the final loss must be marked explicitly"."""

    def two(out: Any, target: Any) -> Any:
        return nn.functional.mse_loss(out, target), nn.functional.l1_loss(out, target)

    with pytest.raises(poptorch.Error, match="Multiple independent losses found"):
        trained(poptorch, two)
    assert trained(poptorch, lambda *both: poptorch.identity_loss(sum(two(*both)), "none")) == 1.0 - 0.5 * 10.0


# -- what a traced graph keeps -------------------------------------------------------------------


def test_an_anchor_has_a_mode(poptorch: Any) -> None:
    """anchorTensor: "Specifies when data should be returned. Default to None: the same as for model outputs".

    Debugging: getTensorNames, getAnchoredTensor.
    """
    model = Scaled(poptorch)
    options = options_of(poptorch, iterations=4)
    for name, mode in (("all", ("All",)), ("every", ("EveryN", 2)), ("sum", ("Sum",)), ("last", ())):
        options.anchorTensor(
            name, "Gradient___weight", *[poptorch.OutputMode[one] if isinstance(one, str) else one for one in mode]
        )
    options.anchorTensor("updated", "UpdatedVar___weight")
    training = poptorch.trainingModel(model, options, sgd(model))
    training(torch.tensor([[1.0], [2.0], [3.0], [4.0]]))
    assert "Gradient___weight" in training.getTensorNames()
    assert training.getAnchoredTensor("updated").item() == 1.0 - 0.5 * (1 + 2 + 3 + 4)
    seen = {name: training.getAnchoredTensor(name).tolist() for name in ("all", "every", "sum", "last")}
    assert seen == {"all": [1.0, 2.0, 3.0, 4.0], "every": [2.0, 4.0], "sum": 10.0, "last": 4.0}


# -- optimizers ----------------------------------------------------------------------------------


def test_another_kind_of_optimizer_is_refused(poptorch: Any) -> None:
    """setOptimizer: a compiled model has the rule of its optimizer built in."""
    model = Scaled(poptorch)
    training = poptorch.trainingModel(model, options_of(poptorch), poptorch.optim.SGD(model.parameters(), lr=0.1))
    training(torch.ones(1, 1))
    with pytest.raises(poptorch.Error, match="Adam can't replace SGD"):
        training.setOptimizer(poptorch.optim.Adam(model.parameters(), lr=0.1))


def test_state_that_is_not_there_yet_is_none(poptorch: Any) -> None:
    """state_dict: "populated when the training model is compiled"; what was read before can be loaded."""
    model = Scaled(poptorch)
    optimizer = poptorch.optim.Adam(model.parameters(), lr=0.1)
    state = optimizer.state_dict()
    assert (state["ipu_state"], state["ipu_param"]) == (None, None)
    assert not optimizer.has_state()
    optimizer.load_state_dict(state)
    training = poptorch.trainingModel(model, options_of(poptorch), optimizer)
    training(torch.ones(1, 1))
    assert optimizer.has_state()


def test_the_runtime_takes_no_state_from_a_model_that_is_not_compiled(poptorch: Any) -> None:
    """A checkpoint before the first update."""
    from trainjob.train.engines.ipu.options import optimizer_state

    assert optimizer_state(poptorch.optim.Adam(Scaled(poptorch).parameters(), lr=0.1)) == {}


def test_accumulators_are_float16_or_float32(poptorch: Any) -> None:
    with pytest.raises(AssertionError, match=r"torch\.float16 or torch\.float32"):
        poptorch.optim.Adam(Scaled(poptorch).parameters(), accum_type=torch.int32)


# -- operations and errors -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "call",
    [
        lambda poptorch: poptorch.nop(1),
        lambda poptorch: poptorch.ipu_print_tensor(1),
        lambda poptorch: poptorch.set_available_memory(1, 0.5),
        lambda poptorch: poptorch.dynamic_slice([1], 0, torch.tensor(0), 1, 1),
        lambda poptorch: poptorch.dynamic_slice(torch.ones(4), 0, 1, 2, 1),
    ],
    ids=["nop", "print", "memory", "slice", "start"],
)
def test_operations_take_tensors(poptorch: Any, call: Any) -> None:
    with pytest.raises(poptorch.Error, match=r"torch\.tensor"):
        call(poptorch)


def test_errors_on_request(poptorch: Any) -> None:
    """Error handling: the example raises each kind of error by itself."""
    core = importlib.import_module("poptorch.poptorch_core")
    with pytest.raises(poptorch.RecoverableError) as recoverable:
        core._throwTestError(core.TestErrorType.PoplarRecoverableFullReset)
    assert recoverable.value.recovery_action == "FULL_RESET"
    with pytest.raises(poptorch.UnrecoverableError):
        core._throwTestError(core.TestErrorType.PoplarUnrecoverable)
    with pytest.raises(poptorch.Error) as other:
        core._throwTestError(core.TestErrorType.Poplibs)
    assert type(other.value) is poptorch.Error
