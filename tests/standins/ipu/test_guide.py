"""Statements of PopTorch's user guide, each held by a test; the section stands in the docstring."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.support.standin_models import Scaled, options_of


def sgd(model: nn.Module, rate: float = 0.5) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=rate)


# -- model wrapping functions ------------------------------------------------------------------


def test_validation_follows_training_without_a_copy(poptorch: Any) -> None:
    """PoplarExecutor: "will implicitly keep in sync the parameters of the source model and the PopTorch model(s)"."""
    model = Scaled(poptorch)
    training = poptorch.trainingModel(model, options_of(poptorch), sgd(model))
    validation = poptorch.inferenceModel(model, options_of(poptorch))
    seen = []
    for _ in range(3):
        seen.append(validation(torch.ones(1, 1))[0].item())
        training(torch.ones(1, 1))
    assert seen == [1.0, 0.5, 0.0]


def test_training_on_the_host_needs_a_copy(poptorch: Any) -> None:
    """PoplarExecutor: "you need to explicitly copy the weights … if you train the model on the CPU"."""
    model = Scaled(poptorch)
    validation = poptorch.inferenceModel(model, options_of(poptorch))
    validation(torch.ones(1, 1))
    with torch.no_grad():
        model.weight.fill_(3.0)
    assert validation(torch.ones(1, 1))[0].item() == 1.0
    validation.copyWeightsToDevice()
    assert validation(torch.ones(1, 1))[0].item() == 3.0


class Mode(nn.Module):
    def __init__(self, poptorch: Any) -> None:
        super().__init__()
        self.inner = nn.Dropout(0.5)
        self.weight = nn.Parameter(torch.ones(()))
        self.loss = poptorch.identity_loss

    def forward(self, values: Any) -> Any:
        reported = torch.tensor([float(self.training), float(self.inner.training)])
        return reported, self.loss((values * self.weight).sum(), "sum")


def test_the_mode_is_that_of_wrapping(poptorch: Any) -> None:
    """Model wrapping: "call model.eval() or model.train(), if required, before calling these wrapping functions"."""
    model = Mode(poptorch)
    training = poptorch.trainingModel(model.train(), options_of(poptorch))
    validation = poptorch.inferenceModel(model.eval(), options_of(poptorch))
    assert training(torch.ones(1))[0].tolist() == [1.0, 1.0]
    model.train()
    assert validation(torch.ones(1))[0].tolist() == [0.0, 0.0]
    assert model.training
    assert model.inner.training


def test_forward_knows_that_it_runs_on_an_ipu(poptorch: Any) -> None:
    """isRunningOnIpu: "returns True when executing on the IPU and False when executing the model outside IPU scope"."""

    class Asks(nn.Module):
        def forward(self, values: Any) -> Any:
            return values + (1 if poptorch.isRunningOnIpu() else 2)

    model = Asks().eval()
    assert poptorch.inferenceModel(model, options_of(poptorch))(torch.zeros(1)).item() == 1
    assert model(torch.zeros(1)).item() == 2
    assert not poptorch.isRunningOnIpu()


def test_a_model_that_nobody_has_any_more_holds_no_ipus(poptorch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop over models on pod16: the 20th finds an IPU, as the 1st did."""
    monkeypatch.setenv("TRAINJOB_STANDIN_IPUS", "2")
    for _ in range(5):
        model = Scaled(poptorch)
        training = poptorch.trainingModel(model, options_of(poptorch), poptorch.optim.SGD(model.parameters(), lr=0.1))
        training(torch.ones(1, 1))
    del training
    gc.collect()
    inference = poptorch.inferenceModel(nn.Linear(1, 1).eval(), options_of(poptorch, replicas=2))
    assert inference(torch.ones(2, 1)).shape == (2, 1)


def test_a_result_has_no_backward(poptorch: Any) -> None:
    loss = poptorch.trainingModel(Scaled(poptorch), options_of(poptorch))(torch.ones(1, 1))[1]
    with pytest.raises(poptorch.Error, match=r"backward\(\) cannot be called explicitly"):
        loss.backward()


def test_an_input_with_a_gradient_is_detached(poptorch: Any, capfd: pytest.CaptureFixture[str]) -> None:
    values = torch.ones(1, requires_grad=True)
    poptorch.trainingModel(Scaled(poptorch), options_of(poptorch))(values)
    assert values.grad is None
    assert "will be detached" in capfd.readouterr().err


# -- what a compiled graph computes --------------------------------------------------------------


def test_in_place_on_an_input_counts_once(poptorch: Any) -> None:
    class Adds(nn.Module):
        def forward(self, values: Any) -> Any:
            values += 1
            return values * 2

    model = poptorch.inferenceModel(Adds().eval(), options_of(poptorch))
    for _ in range(2):
        values = torch.zeros(2)
        assert model(values).tolist() == [2.0, 2.0]
        assert values.tolist() == [1.0, 1.0]


def test_a_loops_body_does_not_change_what_it_was_given(poptorch: Any) -> None:
    """for_loop: "Each iteration will have the previous output passed in as input"."""

    class Loops(nn.Module):
        def forward(self, values: Any) -> Any:
            def body(one: Any, other: Any) -> Any:
                return one.add_(other), other

            looped = poptorch.for_loop(3, body, [values, values * 2])
            return values, looped[0]

    given, looped = poptorch.inferenceModel(Loops().eval(), options_of(poptorch))(torch.ones(1))
    assert (given.item(), looped.item()) == (1.0, 7.0)
    with pytest.raises(ValueError, match="not list"):
        poptorch.for_loop(1, lambda one: one, torch.ones(1))


def test_a_weight_in_a_closure_is_trained(poptorch: Any) -> None:
    class Closes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            layer: Any = nn.Linear(1, 1, bias=False)
            self.layer = layer
            self.apply_layer: Any = lambda values: layer(values)

        def forward(self, values: Any) -> Any:
            return poptorch.identity_loss(self.apply_layer(values).sum(), "sum")

    model = Closes()
    nn.init.ones_(model.layer.weight)
    training = poptorch.trainingModel(model, options_of(poptorch), sgd(model))
    assert [training(torch.ones(1, 1)).item() for _ in range(2)] == [1.0, 0.5]
    assert model.layer.weight.item() == 0.0
    assert model.layer.weight.grad is None


def test_an_attribute_is_a_constant_of_the_graph_and_a_buffer_is_not(poptorch: Any) -> None:
    """PyTorch buffers: "does not increment model.i each time, when running on the IPU"; a registered buffer does."""

    class Counts(nn.Module):
        kept: Any

        def __init__(self) -> None:
            super().__init__()
            self.i, self.j = torch.tensor([1.0]), torch.tensor([1.0])
            self.register_buffer("kept", torch.tensor([1.0]))

        def forward(self, values: Any) -> Any:
            self.i = self.i + 1
            self.j += 1
            self.kept += 1
            return values + self.i, values + self.j, values + self.kept

    model = Counts().eval()
    inference = poptorch.inferenceModel(model, options_of(poptorch))
    seen = [[one.item() for one in inference(torch.zeros(1))] for _ in range(3)]
    assert [constants for *constants, _ in seen] == [[2.0, 2.0]] * 3
    assert [buffer for *_, buffer in seen] == [2.0, 3.0, 4.0]
    assert model.kept.item() == 1.0  # "any buffers which your model modifies will not be implicitly copied to the host"
    inference.copyWeightsToHost()
    assert model.kept.item() == 4.0


def test_updated_buffers_of_replicas_need_an_option(poptorch: Any) -> None:
    """PyTorch buffers: "You can make each replica use its own buffer by setting … broadcastBuffers to False"."""

    class Updates(nn.Module):
        count: Any

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(1))

        def forward(self, values: Any) -> Any:
            self.count += 1
            return values + self.count

    with pytest.raises(poptorch.Error, match=r"broadcastBuffers\(False\)"):
        poptorch.inferenceModel(Updates().eval(), options_of(poptorch, replicas=2))(torch.zeros(2))
    own = options_of(poptorch, replicas=2).broadcastBuffers(False)
    assert poptorch.inferenceModel(Updates().eval(), own)(torch.zeros(2)).tolist() == [1.0, 1.0]


def test_named_buffers_can_be_updated(poptorch: Any) -> None:
    class Reads(nn.Module):
        shift: Any
        other: Any

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("shift", torch.zeros(1))
            self.register_buffer("other", torch.zeros(1))

        def forward(self, values: Any) -> Any:
            return values + self.shift + self.other

    model = Reads().eval()
    inference = poptorch.inferenceModel(model, options_of(poptorch).updatableNamedBuffers(["shift"]))
    inference(torch.zeros(1))
    model.shift.fill_(1.0)
    model.other.fill_(5.0)
    inference.copyNamedBuffersToDevice()
    assert inference(torch.zeros(1)).item() == 1.0


@pytest.mark.filterwarnings("ignore:.*weight_norm:FutureWarning")
def test_weight_norm_after_a_forward(poptorch: Any) -> None:
    layer = nn.utils.weight_norm(nn.Linear(2, 1))
    expected = layer(torch.ones(1, 2)).item()
    assert poptorch.inferenceModel(layer.eval(), options_of(poptorch))(torch.ones(1, 2)).item() == pytest.approx(
        expected
    )


def test_an_optional_argument_by_name(poptorch: Any) -> None:
    class Takes(nn.Module):
        def forward(self, one: Any, two: Any = None, three: Any = None) -> Any:
            return one + (0 if two is None else two) + (0 if three is None else 10 * three)

    inference = poptorch.inferenceModel(Takes().eval(), options_of(poptorch))
    assert inference(torch.ones(1), three=torch.ones(1)).item() == 11
    assert inference(one=torch.ones(1), three=torch.ones(1)).item() == 11


# -- precompilation ------------------------------------------------------------------------------


def test_a_model_compiled_offline_is_loaded_and_run(poptorch: Any, tmp_path: Path) -> None:
    """Precompilation: useOfflineIpuTarget, compileAndExport, poptorch.load, on another machine."""
    model = Scaled(poptorch)
    options = options_of(poptorch).useOfflineIpuTarget(poptorch.ipuHardwareVersion())
    precompiled = poptorch.trainingModel(model, options, poptorch.optim.SGD(model.parameters(), lr=0.5))
    path = str(tmp_path / "new" / "training_model.poptorch")
    precompiled.compileAndExport(path, torch.ones(1, 1))
    loaded = poptorch.load(path)
    assert [loaded(torch.ones(1, 1))[0].item() for _ in range(2)] == [1.0, 0.5]
    chosen = poptorch.load(path, edit_opts_fn=lambda options: options.useIpuId(1))
    assert chosen.options.ipu_id == 1


def test_an_executable_alone_needs_the_model_again(poptorch: Any, tmp_path: Path) -> None:
    """Precompilation: export_model=False, then wrap and loadExecutable."""
    path = str(tmp_path / "executable")
    offline = options_of(poptorch).useOfflineIpuTarget()
    poptorch.inferenceModel(nn.Linear(1, 1).eval(), offline).compileAndExport(
        path, torch.ones(1, 1), export_model=False
    )
    again = poptorch.inferenceModel(nn.Linear(1, 1).eval(), options_of(poptorch))
    again.loadExecutable(path)
    assert again.isCompiled()
    again(torch.ones(1, 1))


def test_exported_models_are_connected_by_the_same_module(poptorch: Any, tmp_path: Path) -> None:
    """Precompilation: "re-connect the two models by creating the second one from the first one"."""
    model = Scaled(poptorch)
    training = poptorch.trainingModel(model, options_of(poptorch).useOfflineIpuTarget(), sgd(model))
    training.compileAndExport(str(tmp_path / "training"), torch.ones(1, 1))
    validation = poptorch.inferenceModel(model, options_of(poptorch).useOfflineIpuTarget())
    validation.compileAndExport(str(tmp_path / "validation"), torch.ones(1, 1), export_model=False)
    training = poptorch.load(str(tmp_path / "training"))
    validation = poptorch.inferenceModel(training, options_of(poptorch))
    validation.loadExecutable(str(tmp_path / "validation"))
    training(torch.ones(1, 1))
    assert validation(torch.ones(1, 1))[0].item() == 0.5


def test_another_file_is_refused(poptorch: Any, tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(b"nothing of ours")
    with pytest.raises(poptorch.Error, match="Invalid file"):
        poptorch.load(str(tmp_path / "other"))


# -- errors, inspection ----------------------------------------------------------------------------


def test_an_error_says_what_where_and_of_what_type(poptorch: Any) -> None:
    """Error handling: message, type and location; recovery_action of a recoverable one."""
    with pytest.raises(poptorch.Error) as caught:
        poptorch.inferenceModel(nn.Linear(1, 1).eval()).copyWeightsToHost()
    assert caught.value.message == "Model has not been compiled or has been destroyed."
    assert caught.value.type
    assert ".py:" in caught.value.location
    assert poptorch.RecoverableError("x").recovery_action == "IPU_RESET"
    assert poptorch.poptorch_core.Error is poptorch.Error


def test_times_are_there_and_cycles_are_the_hardwares(poptorch: Any) -> None:
    inference = poptorch.inferenceModel(nn.Linear(1, 1).eval(), options_of(poptorch).logCycleCount(True))
    assert inference.getPerfCounters()["input"] == [[]]
    inference(torch.ones(1, 1))
    least, most, mean = inference.getLatency()
    assert 0 < least <= mean <= most
    assert inference.getComputeLatency()[2] > 0
    assert inference.getHostIpuLatency() == inference.getIpuHostLatency() == (0.0, 0.0, 0.0)
    assert inference.compilationTime() > 0
    with pytest.raises(poptorch.Error, match="needs IPU hardware"):
        inference.cycleCount()


def test_traced_code_runs_as_it_is(poptorch: Any) -> None:
    """PopVision: poptorch.profiling.Channel."""
    channel = poptorch.profiling.Channel("mine")
    with channel.tracepoint("step"):
        value = 1
    channel.instrument(poptorch.Options(), "randomSeed")
    with pytest.raises(AttributeError):
        channel.instrument(poptorch.Options(), "nothing")
    assert value == 1


def test_autocast_says_that_it_changes_nothing(poptorch: Any, capfd: pytest.CaptureFixture[str]) -> None:
    """Automatic mixed-precision casting."""
    with poptorch.autocast():
        assert (torch.ones(1, 1) @ torch.ones(1, 1)).dtype is torch.float32
    assert "poptorch.autocast has no effect in a stand-in" in capfd.readouterr().err
    assert poptorch.autocast(enabled=False)(abs) is abs
