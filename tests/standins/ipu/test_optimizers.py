"""Optimizers as PopTorch's user guide has them: state read and written, constant attributes, RMSprop's variant."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.support.standin_models import Scaled, options_of

MAKE: dict[str, dict[str, Any]] = {
    "SGD": {"lr": 0.1, "momentum": 0.9},
    "Adam": {"lr": 0.1},
    "AdamW": {"lr": 0.1, "second_order_momentum_accum_type": torch.float16},
    "LAMB": {"lr": 0.1},
    "RMSprop": {"lr": 0.1, "momentum": 0.5, "centered": True},
}


def trained(poptorch: Any, name: str, updates: int, state: Any = None, weight: float = 1.0) -> tuple[Any, Any]:
    model = Scaled(poptorch)
    with torch.no_grad():
        model.weight.fill_(weight)
    optimizer = getattr(poptorch.optim, name)(model.parameters(), **MAKE[name])
    if state is not None:
        optimizer.load_state_dict(state)
    training = poptorch.trainingModel(model, options_of(poptorch), optimizer)
    for _ in range(updates):
        training(torch.full((1, 1), 0.5))
    return training, optimizer


@pytest.mark.parametrize("name", sorted(MAKE))
def test_training_continues_from_a_checkpoint(poptorch: Any, name: str, tmp_path: Path) -> None:
    """ "use the optimizer's state_dict() and load_state_dict() … to restart training from a checkpoint"."""
    whole, _ = trained(poptorch, name, 5)
    half, optimizer = trained(poptorch, name, 3)
    torch.save({"optimizer_state_dict": optimizer.state_dict()}, tmp_path / "checkpoint.pt")
    state = torch.load(tmp_path / "checkpoint.pt")["optimizer_state_dict"]
    resumed, again = trained(poptorch, name, 2, state, half.model.weight.item())
    assert resumed.model.weight.item() == whole.model.weight.item()
    assert {"ipu_state", "ipu_param", "param_groups"} <= set(again.state_dict())


def test_state_is_there_once_compiled_and_survives_the_model(poptorch: Any) -> None:
    """Debugging: "populated when the training model is compiled, and is updated after each training step"."""
    training, optimizer = trained(poptorch, "Adam", 2)
    assert optimizer.has_state()
    before = optimizer.state_dict()["ipu_state"]
    assert {key.partition("___")[0] for key in before} == {"Accl1", "Accl2", "Step"}
    training(torch.full((1, 1), 0.5))
    after = optimizer.state_dict()["ipu_state"]
    assert after["Step___weight"] == before["Step___weight"] + 1
    training.destroy()
    assert optimizer.state_dict()["ipu_state"].keys() == after.keys()


@pytest.mark.parametrize("traces", [False, True])
def test_state_has_the_names_of_the_device_before_the_first_update(poptorch: Any, traces: bool) -> None:
    """The user's model is `model` in the names where it is traced; settings are there as the device combines them."""
    prefix = "model." * traces
    for name, keys in {
        "Adam": {"Accl1", "Accl2", "Step"},
        "SGD": {"Accl"},
        "RMSprop": {"Accl1", "Accl2", "Accl3"},
    }.items():
        model = Scaled(poptorch)
        optimizer = getattr(poptorch.optim, name)(model.parameters(), **MAKE[name], weight_decay=0.5, loss_scaling=4.0)
        options = options_of(poptorch)
        options.Jit.traceModel(traces)
        training = poptorch.trainingModel(model, options, optimizer)
        training.compile(torch.ones(1, 1))
        state = optimizer.state_dict()
        assert set(state["ipu_state"]) == {key + "___" + prefix + "weight" for key in keys}
        rate = "scaledLearningRate0" if name == "SGD" else "learningRate"
        found = state["ipu_param"][rate + "___specific___" + prefix + "weight"]
        assert found == pytest.approx(0.025 if name == "SGD" else 0.1)
        assert state["ipu_param"]["lossScaling_FLOAT"] == 4


def test_a_velocity_is_there_wherever_momentum_can_change(poptorch: Any) -> None:
    """A constant momentum of 0 needs none."""
    for more, keys in (({}, []), ({"momentum": 0.0}, ["Accl___weight"])):
        model = Scaled(poptorch)
        optimizer = poptorch.optim.SGD(model.parameters(), lr=0.1, **more)
        training = poptorch.trainingModel(model, options_of(poptorch), optimizer)
        training.compile(torch.ones(1, 1))
        assert list(optimizer.state_dict()["ipu_state"]) == keys


@pytest.mark.parametrize("name", sorted(MAKE))
def test_settings_of_a_loaded_state_are_the_devices_until_it_is_told_others(poptorch: Any, name: str) -> None:
    training, optimizer = trained(poptorch, name, 1)
    state = optimizer.state_dict()
    rate = ("scaledLearningRate0" if name == "SGD" else "learningRate") + "___specific___weight"
    decay = ("weightDecayScaleFactor0" if name == "SGD" else "weightDecay") + "___specific___weight"
    kept = state["ipu_param"].pop(decay)
    state["ipu_param"][rate] = torch.tensor(0.0)
    optimizer.load_state_dict(state)
    assert decay not in optimizer.state_dict()["ipu_param"]
    before = training.model.weight.item()
    training(torch.full((1, 1), 0.5))
    assert training.model.weight.item() == before
    assert optimizer.state_dict()["ipu_param"][rate] == 0
    if name != "SGD":
        assert optimizer.state_dict()["ipu_param"][decay] == kept
    training.setOptimizer(optimizer)
    training(torch.full((1, 1), 0.5))
    assert training.model.weight.item() != before


@pytest.mark.parametrize("name", ["SGD", "Adam"])
def test_a_state_that_is_loaded_where_it_was_read_changes_no_bit(poptorch: Any, name: str) -> None:
    seen = []
    for reloads in (False, True):
        model = Scaled(poptorch)
        optimizer = getattr(poptorch.optim, name)(model.parameters(), **MAKE[name], weight_decay=0.3, loss_scaling=0.3)
        training = poptorch.trainingModel(model, options_of(poptorch), optimizer)
        for _ in range(3):
            training(torch.full((1, 1), 0.7))
            if reloads:
                optimizer.load_state_dict(optimizer.state_dict())
        seen.append(model.weight.item())
    assert seen[0] == seen[1]


def test_what_is_logged_of_an_optimizer(poptorch: Any, capfd: Any, caplog: Any) -> None:
    """At DEBUG: settings where they have changed, with those that are built in, and the ways of its state."""
    poptorch.setLogLevel("DEBUG")
    training, optimizer = trained(poptorch, "Adam", 1)
    seen = capfd.readouterr().err
    assert "Updating graph optimizer with Adam, defaultLearningRate=0.1, defaultBeta1=0.9 (const)" in seen
    assert "lossScaling=1 (const), accumType=float32, firstOrderMomentumAccumType=float32" in seen
    assert "Updating group 0 optimizer with Adam, learningRate=0.1," in seen
    training.setOptimizer(optimizer)
    assert "optimizer" not in capfd.readouterr().err
    optimizer.param_groups[0]["lr"] = 0.5
    training.setOptimizer(optimizer)
    assert "learningRate=0.5," in capfd.readouterr().err
    state = optimizer.state_dict()
    assert "Writing optimiser state tensors from IPU to host" in capfd.readouterr().err
    optimizer.state_dict()
    assert "Using cached optimiser state dict" in caplog.text
    optimizer.load_state_dict(state)
    training(torch.full((1, 1), 0.5))
    assert "Writing optimiser state tensors from host to IPU memory" in capfd.readouterr().err
    poptorch.setLogLevel("WARN")
    training.setOptimizer(optimizer)
    training(torch.full((1, 1), 0.5))
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("relaxed", [False, True])
def test_attributes_that_the_device_ignores_are_warned_of_once(poptorch: Any, capfd: Any, relaxed: bool) -> None:
    """Those of a scheduler that was made before compiling are no surprise."""
    model = Scaled(poptorch)
    optimizer = poptorch.optim.SGD(model.parameters(), lr=0.1)
    optimizer.param_groups[0]["initial_lr"] = 0.1
    options = options_of(poptorch).relaxOptimizerAttributesChecks(relaxed)
    training = poptorch.trainingModel(model, options, optimizer)
    training(torch.ones(1, 1))
    assert "unexpected" not in capfd.readouterr().err
    optimizer.initial_lr = optimizer.param_groups[0]["warm_up"] = 5
    training.setOptimizer(optimizer)
    seen = capfd.readouterr().err
    for line in (
        "unexpected optimizer attributes in SGD optimizer: ['initial_lr']",
        "group 0 attributes in SGD optimizer: ['warm_up']",
    ):
        assert (line in seen) is not relaxed
    training.setOptimizer(optimizer)
    assert "unexpected" not in capfd.readouterr().err


def test_optimizers_that_torch_lacks_update_on_the_host_as_on_the_device(poptorch: Any) -> None:
    for make in (
        poptorch.optim.LAMB,
        lambda weights, **how: poptorch.optim.AdamW(weights, bias_correction=False, **how),
    ):
        host, device = nn.Linear(3, 1), Summing(poptorch)
        device.layer.load_state_dict(host.state_dict())
        optimizer = make(host.parameters(), lr=0.1, weight_decay=0.1)
        training = poptorch.trainingModel(
            device, options_of(poptorch), make(device.parameters(), lr=0.1, weight_decay=0.1)
        )
        for _ in range(3):
            optimizer.zero_grad()
            host(torch.ones(1, 3)).sum().backward()
            optimizer.step()
            training(torch.ones(1, 3))
        for one, other in zip(host.parameters(), device.parameters(), strict=True):
            assert torch.allclose(one, other, atol=1e-6)


class Summing(nn.Module):
    def __init__(self, poptorch: Any) -> None:
        super().__init__()
        self.layer, self._loss = nn.Linear(3, 1), poptorch.identity_loss

    def forward(self, inputs: Any) -> Any:
        return self._loss(self.layer(inputs), reduction="sum")


def test_a_state_of_pytorch_is_refused(poptorch: Any) -> None:
    """ "you cannot load a state dictionary with PopTorch that was obtained by running native PyTorch"."""
    _, optimizer = trained(poptorch, "Adam", 1)
    with pytest.raises(poptorch.Error, match="ipu_state is missing"):
        optimizer.load_state_dict(torch.optim.Adam(Scaled(poptorch).parameters()).state_dict())


def test_a_constant_attribute_can_not_change(poptorch: Any) -> None:
    """ "Trying to modify a constant attribute after the model has been compiled will result in an error"."""
    training, optimizer = trained(poptorch, "SGD", 1)
    assert optimizer.variable_attrs.isConstant("weight_decay")
    optimizer.param_groups[0].update(lr=0.01, momentum=0.5)
    training.setOptimizer(optimizer)
    optimizer.param_groups[0]["weight_decay"] = 0.1
    with pytest.raises(poptorch.Error, match="weight_decay: constant"):
        training.setOptimizer(optimizer)


def test_attributes_can_be_marked(poptorch: Any) -> None:
    """markAsConstant, markAsVariable; lr is always variable."""
    optimizer = poptorch.optim.SGD(Scaled(poptorch).parameters(), lr=0.1, loss_scaling=2.0)
    optimizer.variable_attrs.markAsConstant("loss_scaling")
    optimizer.variable_attrs.markAsVariable("momentum")
    assert [optimizer.variable_attrs.isConstant(name) for name in ("lr", "loss_scaling", "momentum")] == [
        False,
        True,
        False,
    ]
    with pytest.raises(AssertionError, match="speed"):
        optimizer.variable_attrs.markAsVariable("speed")


def test_a_torch_optimizers_defaults_are_constants(poptorch: Any) -> None:
    """ "the attributes which are left to their default value in the constructor will be considered to be constant"."""
    model = Scaled(poptorch)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    training = poptorch.trainingModel(model, options_of(poptorch), optimizer)
    training(torch.ones(1, 1))
    optimizer.param_groups[0].update(lr=0.01)
    training.setOptimizer(optimizer)
    optimizer.param_groups[0]["momentum"] = 0.9
    with pytest.raises(poptorch.Error, match="momentum: constant"):
        training.setOptimizer(optimizer)


def test_tensorflows_rmsprop_begins_with_ones(poptorch: Any) -> None:
    """RMSprop(use_tf_variant=True): epsilon inside the root, squares that begin as ones."""
    model = Scaled(poptorch)
    optimizer = poptorch.optim.RMSprop(model.parameters(), lr=0.1, alpha=0.9, eps=0.5, use_tf_variant=True)
    poptorch.trainingModel(model, options_of(poptorch), optimizer)(torch.full((1, 1), 2.0))
    assert model.weight.item() == pytest.approx(1.0 - 0.1 * 2.0 / (0.9 + 0.1 * 4.0 + 0.5) ** 0.5)


def test_automatic_loss_scaling_doubles_until_gradients_are_large(poptorch: Any) -> None:
    """PopART: the scale of an update is the factor before it; only float16's gradients count."""
    model = Scaled(poptorch).half()
    options = options_of(poptorch)
    options.Training.setAutomaticLossScaling(True)
    options.anchorTensor("scale", "finalLossScale", poptorch.OutputMode.Final)
    optimizer = poptorch.optim.SGD(model.parameters(), lr=0.0, loss_scaling=2.0, use_combined_accum=False)
    training = poptorch.trainingModel(model, options, optimizer)
    inputs = torch.ones(1, 1).half()
    training.compile(inputs)
    seen = []
    for size in (1.0, 1.0, 2000.0, 1.0):
        factor = optimizer.state_dict()["ipu_state"]["lossScaleUpdateFactor"].item()
        training(inputs * size)
        seen.append((factor, training.getAnchoredTensor("scale").item()))
    assert seen == [(1.0, 2.0), (2.0, 4.0), (4.0, 8.0), (2.0, 4.0)]
    state = optimizer.state_dict()
    for factor, kept in ((2.0**20, 2.0**14), (0.5, 1.0)):
        state["ipu_state"]["lossScaleUpdateFactor"] = torch.tensor(factor / 2)
        optimizer.load_state_dict(state)
        training(inputs * 1e-4)
        assert optimizer.state_dict()["ipu_state"]["lossScaleUpdateFactor"].item() == min(factor, kept)


def test_automatic_loss_scaling_changes_no_update(poptorch: Any) -> None:
    weights = []
    for scales in (False, True):
        model = Scaled(poptorch).half()
        options = options_of(poptorch, accumulation=2)
        options.Training.setAutomaticLossScaling(scales)
        training = poptorch.trainingModel(model, options, poptorch.optim.SGD(model.parameters(), lr=0.25))
        for _ in range(3):
            training(torch.tensor([[0.5], [0.25]]).half())
        weights.append(model.weight.item())
    assert weights == [1 - 3 * 0.25 * 0.375] * 2


def test_what_the_device_has_no_optimizer_for(poptorch: Any) -> None:
    """The real one refuses nesterov with these words and ValueError, too: its own test says so."""
    model = Scaled(poptorch)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True)
    with pytest.raises(ValueError, match="Nesterov momentum is currently not supported"):
        poptorch.trainingModel(model, options_of(poptorch), optimizer)(torch.ones(1, 1))


def test_accumulators_keep_the_type_that_they_were_compiled_with(poptorch: Any) -> None:
    """It decides how means are taken."""
    model = Scaled(poptorch)
    optimizer = poptorch.optim.Adam(model.parameters(), lr=0.1)
    training = poptorch.trainingModel(model, options_of(poptorch), optimizer)
    training.compile(torch.ones(1, 1))
    optimizer.accum_type = torch.float16
    with pytest.raises(ValueError, match="is already compiled"):
        training.setOptimizer(optimizer)


def test_an_offline_target_has_no_state(poptorch: Any) -> None:
    model = Scaled(poptorch)
    optimizer = poptorch.optim.Adam(model.parameters(), lr=0.1)
    training = poptorch.trainingModel(model, options_of(poptorch).useOfflineIpuTarget(), optimizer)
    training.compile(torch.ones(1, 1))
    assert optimizer.state_dict()["ipu_state"] is None
