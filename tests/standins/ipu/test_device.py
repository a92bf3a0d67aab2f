"""What a model does to weights, types and IPUs, against ipu.md 4.5 and 4.8."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.support.standin_models import Scaled, options_of


def test_weights_go_to_the_device_when_told(poptorch: Any) -> None:
    """4.5: copyWeightsToDevice, copyWeightsToHost, load_state_dict."""
    model = Scaled(poptorch)
    training = poptorch.trainingModel(model, options_of(poptorch), torch.optim.SGD(model.parameters(), lr=0.5))
    training(torch.ones(1, 1))
    with torch.no_grad():
        model.weight.fill_(10.0)
    training.copyWeightsToHost()
    assert model.weight.item() == 0.5
    with torch.no_grad():
        model.weight.fill_(10.0)
    training.copyWeightsToDevice()
    assert training(torch.ones(1, 1))[0].item() == 10.0
    training.load_state_dict({"weight": torch.tensor(3.0)})
    assert training(torch.ones(1, 1))[0].item() == 3.0


def test_names_are_the_models_own(poptorch: Any) -> None:
    """4.5: state_dict gives names without wrapper prefixes."""
    model = Scaled(poptorch)
    training = poptorch.trainingModel(model, options_of(poptorch))
    assert list(training.state_dict()) == ["weight"]
    assert [name for name, _ in training.named_parameters()] == ["weight"]


def test_two_attached_models_need_ipus_of_their_own(poptorch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """4.5, 8.9: "Failed to acquire N IPU(s)"; detach or destroy the first."""
    monkeypatch.setenv("TRAINJOB_STANDIN_IPUS", "2")
    model = Scaled(poptorch)
    training = poptorch.trainingModel(model, options_of(poptorch, replicas=2))
    training(torch.ones(2, 1))
    evaluated = copy.deepcopy(model).eval()
    inference = poptorch.inferenceModel(evaluated, options_of(poptorch, replicas=2))
    with pytest.raises(poptorch.Error, match=r"Failed to acquire 2 IPU\(s\)"):
        inference(torch.ones(2, 1))
    training.detachFromDevice()
    assert not training.isAttachedToDevice()
    inference(torch.ones(2, 1))
    inference.destroy()
    assert not inference.isCompiled()
    training.attachToDevice()
    training(torch.ones(2, 1))
    training.destroy()
    assert poptorch.ipuHardwareIsAvailable(2)
    assert not poptorch.ipuHardwareIsAvailable(3)
    assert poptorch.ipuHardwareVersion() == 2


def test_inference_sees_the_trained_weights(poptorch: Any) -> None:
    """4.5: attach and copy weights as needed."""
    model = Scaled(poptorch)
    training = poptorch.trainingModel(model, options_of(poptorch), torch.optim.SGD(model.parameters(), lr=0.5))
    inference = poptorch.inferenceModel(model, options_of(poptorch))
    training(torch.ones(1, 1))
    training.detachFromDevice()
    assert inference(torch.ones(1, 1))[0].item() == 0.5
    inference.detachFromDevice()
    training(torch.ones(1, 1))
    training.detachFromDevice()
    assert inference(torch.ones(1, 1))[0].item() == 0.0


def test_integers_and_doubles_shrink_and_say_so_once(poptorch: Any, capfd: pytest.CaptureFixture[str]) -> None:
    """4.5: int64 becomes int32, float64 float32, with one warning each."""

    class Both(nn.Module):
        def forward(self, whole: Any, real: Any) -> tuple[Any, ...]:
            return whole, real

    inference = poptorch.inferenceModel(Both().eval(), options_of(poptorch))
    for _ in range(2):
        whole, real = inference(torch.tensor([1 << 32, 7]), torch.tensor([1.0], dtype=torch.float64))
    assert whole.dtype is torch.int32
    assert whole.tolist() == [0, 7]
    assert real.dtype is torch.float32
    output = capfd.readouterr().err
    assert output.count("int64") == output.count("float64") == 1


def test_half_is_rounded_and_computed_in_float(poptorch: Any) -> None:
    """Issue: parameters, inputs and outputs are rounded to float16, computation is float32."""
    model = nn.Linear(1, 1, bias=False).half().eval()
    with torch.no_grad():
        model.weight.fill_(1.0 + 2**-10)
    found = poptorch.inferenceModel(model, options_of(poptorch))(torch.tensor([[1.0 + 2**-10]]).half())
    assert found.dtype is torch.float16
    assert found.item() == torch.tensor((1.0 + 2**-10) ** 2).half().item()


def test_a_model_may_ask_for_half_itself(poptorch: Any) -> None:
    """9.3: the lessons' eight-bit I/O casts to float16 inside the model."""

    class Eight(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(2, 1).half()

        def forward(self, images: Any) -> Any:
            return self.layer(images.to(torch.float16).half() / 255)

    found = poptorch.inferenceModel(Eight().eval(), options_of(poptorch))(torch.tensor([[255, 0]], dtype=torch.uint8))
    assert found.dtype is torch.float16
    assert torch.ones(1).half().dtype is torch.float16


def test_the_loss_must_be_there_and_one(poptorch: Any) -> None:
    """4.5: the wrapped model returns the loss."""

    class Lossless(nn.Linear):
        def forward(self, inputs: Any) -> Any:
            return super().forward(inputs)

    class Two(Scaled):
        def forward(self, inputs: Any) -> tuple[Any, ...]:
            return self._loss(self.weight * inputs, "sum"), self._loss(self.weight * 2, "sum")

    with pytest.raises(poptorch.Error, match="Couldn't find a loss in graph"):
        poptorch.trainingModel(Lossless(2, 2), options_of(poptorch))(torch.ones(1, 2))
    with pytest.raises(poptorch.Error, match="2 losses"):
        poptorch.trainingModel(Two(poptorch), options_of(poptorch))(torch.ones(1, 1))
    with pytest.raises(AssertionError, match="sum, mean, none"):
        poptorch.identity_loss(torch.ones(1), "product")


def test_losses_by_reduction(poptorch: Any) -> None:
    """4.5: "sum", "mean", "none"."""
    values = torch.tensor([1.0, 3.0])
    assert poptorch.identity_loss(values, "sum").item() == 4.0
    assert poptorch.identity_loss(values, "mean").item() == 2.0
    assert poptorch.identity_loss(values, "none").tolist() == [1.0, 3.0]


class Split(nn.Module):
    def __init__(self, poptorch: Any, ipus: Any) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(1, 1) for _ in range(ipus)])
        for number in range(1, ipus):
            self.layers[number] = poptorch.BeginBlock(self.layers[number], ipu_id=number)
        self._loss = poptorch.identity_loss

    def forward(self, values: Any) -> Any:
        for layer in self.layers:
            values = layer(values)
        return self._loss(values, "sum") if self.training else values


def test_a_pipeline_needs_accumulation(poptorch: Any) -> None:
    """4.8: 2 IPUs, 3 stages: accumulation of at least 3; for inference device iterations of at least 2."""
    with pytest.raises(
        poptorch.Error, match=r"stages \(3\) .* with 2 pipeline stages .* additional 1 stages when training"
    ):
        poptorch.trainingModel(Split(poptorch, 2), options_of(poptorch, accumulation=2))(torch.ones(2, 1))
    poptorch.trainingModel(Split(poptorch, 2), options_of(poptorch, accumulation=3))(torch.ones(3, 1))
    with pytest.raises(
        poptorch.Error, match=r"deviceIterations must be greater than or equal to the number of pipeline stages \(2\)"
    ):
        poptorch.inferenceModel(Split(poptorch, 2).eval(), options_of(poptorch))(torch.ones(1, 1))


def test_ipus_are_a_power_of_two(poptorch: Any) -> None:
    """4.8, 1.5: highest ipu_id + 1, unless autoRoundNumIPUs."""
    with pytest.raises(poptorch.Error, match="power of two"):
        poptorch.inferenceModel(Split(poptorch, 3).eval(), options_of(poptorch, 3))(torch.ones(3, 1))
    rounded = options_of(poptorch, 3).autoRoundNumIPUs(True)
    poptorch.inferenceModel(Split(poptorch, 3).eval(), rounded)(torch.ones(3, 1))


def test_blocks(poptorch: Any) -> None:
    """4.8: error if already assigned; Block, BlockFunction, removeBlocks."""
    model = Split(poptorch, 2)
    with pytest.raises(poptorch.Error, match="already been assigned to a block"):
        poptorch.BeginBlock(model.layers[1], ipu_id=1)
    poptorch.removeBlocks(model)
    assert poptorch.BeginBlock(model.layers[1], ipu_id=1) is model.layers[1]

    class Within(Split):
        def forward(self, values: Any) -> Any:
            with poptorch.Block("second", ipu_id=1):
                return super().forward(values)

    with pytest.raises(poptorch.Error, match="with 2 pipeline stages"):
        poptorch.trainingModel(Within(poptorch, 1), options_of(poptorch))(torch.ones(1, 1))

    class Decorated(Split):
        forward = poptorch.BlockFunction("second", ipu_id=1)(Split.forward)

    with pytest.raises(poptorch.Error, match="with 2 pipeline stages"):
        poptorch.trainingModel(Decorated(poptorch, 1), options_of(poptorch))(torch.ones(1, 1))


def test_save_and_load(poptorch: Any, tmp_path: Path) -> None:
    """4.5: save, compileAndExport, loadExecutable, poptorch.load."""
    model = Scaled(poptorch)
    training = poptorch.trainingModel(model, options_of(poptorch), torch.optim.SGD(model.parameters(), lr=0.5))
    training(torch.ones(1, 1))
    training.save(str(tmp_path / "model"))
    training.destroy()
    loaded = poptorch.load(str(tmp_path / "model"))
    assert loaded.isCompiled()
    assert loaded(torch.ones(1, 1))[0].item() == 0.5
    loaded.destroy()
    other = poptorch.trainingModel(Scaled(poptorch), options_of(poptorch))
    other.compileAndExport(str(tmp_path / "other"), torch.ones(1, 1), export_model=False)
    other.destroy()
    again = poptorch.trainingModel(Scaled(poptorch), options_of(poptorch))
    again.loadExecutable(str(tmp_path / "other"))
    again(torch.ones(1, 1))
    with pytest.raises(poptorch.Error, match="holds no model"):
        poptorch.load(str(tmp_path / "other"))
    assert min(again.getLatency()) > 0


def test_an_offline_target_compiles_only(poptorch: Any) -> None:
    """4.2: useOfflineIpuTarget sets connection Never."""
    options = options_of(poptorch).useOfflineIpuTarget()
    assert options.connection_type == poptorch.ConnectionType.Never
    model = poptorch.inferenceModel(nn.Linear(1, 1).eval(), options)
    model.compile(torch.ones(1, 1))
    assert model.isCompiled()
    with pytest.raises(AssertionError, match="offline"):
        model(torch.ones(1, 1))


def test_compiling_shows_and_caches(poptorch: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """4.2: progress bar; 1.6: a folder of executables."""
    options = poptorch.Options().enableExecutableCaching(str(tmp_path / "cache"))
    poptorch.inferenceModel(nn.Linear(1, 1).eval(), options)(torch.ones(1, 1))
    assert "Graph compilation: 100%" in capfd.readouterr().err
    assert len(list((tmp_path / "cache").glob("*.standin"))) == 1


def test_it_says_what_it_is_once(poptorch: Any, capfd: pytest.CaptureFixture[str]) -> None:
    """Issue: semantics, not speed."""
    poptorch.Options()
    poptorch.trainingModel(nn.Linear(1, 1))
    assert capfd.readouterr().err.count("not how fast") == 1


def test_a_module_is_wrapped_for_training_once(poptorch: Any) -> None:
    """ "Call model.destroy() on the model to unwrap before wrapping again"."""
    model = Scaled(poptorch)
    assert not hasattr(model, "destroy")
    training = poptorch.trainingModel(model, options_of(poptorch))
    with pytest.raises(RuntimeError, match=r"already been wrapped in 'poptorch\.trainingModel'"):
        poptorch.trainingModel(model, options_of(poptorch))
    training(torch.ones(1, 1))
    copy.deepcopy(model)
    model.destroy()  # type: ignore[operator] # poptorch gives it to modules
    assert not training.isCompiled()
    again = poptorch.trainingModel(training, options_of(poptorch))
    again.destroy()
    poptorch.trainingModel(model, options_of(poptorch))(torch.ones(1, 1))


class Changing(nn.Module):
    """A buffer that `change` changes in each forward."""

    def __init__(self, change: Any) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(1))
        self._change = change

    def forward(self, inputs: Any) -> Any:
        self._change(self)
        return inputs + 1


def test_buffers_stay_the_ones_that_they_are(poptorch: Any) -> None:
    """Only their values may change."""
    for change, message in (
        (lambda model: model._buffers.pop("count"), "Buffer inner.count is removed from the model"),
        (lambda model: setattr(model, "count", torch.ones(1)), r"Buffer inner.count is reassigned .* self.count.copy_"),
    ):
        model = nn.Sequential()
        model.add_module("inner", Changing(change))
        with pytest.raises(poptorch.Error, match=message):
            poptorch.inferenceModel(model.eval())(torch.ones(1))
    kept = poptorch.inferenceModel(Changing(lambda model: model.count.add_(1)).eval())
    kept(torch.ones(1))
    kept(torch.ones(1))
    kept.copyWeightsToHost()
    assert kept.model.count == 2


def test_tracing_counts_once_on_the_host(poptorch: Any) -> None:
    """The user guide's buffers.py: an attribute that is no buffer is a constant of the graph."""

    class Counter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.count = torch.tensor([0.0])

        def forward(self) -> Any:
            self.count += 1
            return self.count

    model = Counter().eval()
    inference = poptorch.inferenceModel(model)
    assert [inference().item() for _ in range(3)] == [1.0] * 3
    assert model.count.item() == 1.0


class Added(nn.Module):
    def forward(self, first: Any, *others: Any, scale: int = 1, last: Any = None, **more: Any) -> Any:
        found = sum((*others, *more.values()), first)
        return found * scale if last is None else (found + last) * scale


class Wrapped(Added):
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return super().forward(*args, **kwargs)


@pytest.mark.parametrize("model", [Added, Wrapped])
def test_arguments_that_it_was_compiled_for(poptorch: Any, model: Any) -> None:
    """Each argument has the place, type, shape or value of the first call; the error names it."""
    one = torch.ones(2)
    inference = poptorch.inferenceModel(model().eval())
    assert inference(one, one, last=one, extra=one, scale=2).tolist() == [8.0, 8.0]
    lacking = (
        "Missing arguments: last" if model is Wrapped else "Type mismatch for last: expected .*Tensor.* but got .*None"
    )
    for match, args, kwargs in (
        (lacking, (one, one), {"extra": one, "scale": 2}),
        (r"Missing arguments: extra\.", (one, one), {"last": one, "scale": 2}),
        (r"Unexpected arguments: other\.", (one, one), {"last": one, "extra": one, "scale": 2, "other": one}),
        (
            "positional arguments mismatch: expected 2 arguments but got 1",
            (one,),
            {"last": one, "extra": one, "scale": 2},
        ),
        ("Value mismatch for scale: expected 2 but got 3", (one, one), {"last": one, "extra": one, "scale": 3}),
        (
            r"expected torch.Size\(\[2\]\) but got torch.Size\(\[3\]\)",
            (one, one),
            {"last": torch.ones(3), "extra": one, "scale": 2},
        ),
        (
            "last: expected torch.float32 but got torch.int64",
            (one, one),
            {"last": one.long(), "extra": one, "scale": 2},
        ),
    ):
        with pytest.raises(poptorch.Error, match=match):
            inference(*args, **kwargs)
    inference.destroy()
    assert inference(one).tolist() == [1.0, 1.0]


def test_arguments_within_structures(poptorch: Any) -> None:
    class Divided(nn.Module):
        def forward(self, given: Any) -> Any:
            return given["x"] / given["parts"][0]

    x, y = torch.ones(1), torch.full((1,), 2.0)
    inference = poptorch.inferenceModel(Divided().eval())
    for given in ({"x": x, "parts": [y]}, {"parts": (y,), "x": x}):
        assert inference(given).item() == 0.5
    for match, other in (
        (r"Missing arguments: x\.", {"parts": [y]}),
        (r"Unexpected arguments: z\.", {"x": x, "parts": [y], "z": x}),
        (r"given\['parts'\]: expected 1 but got 2", {"x": x, "parts": [y, y]}),
    ):
        with pytest.raises(poptorch.Error, match=match):
            inference(other)


def test_a_default_that_is_a_tensor_is_an_input(poptorch: Any) -> None:
    class Summed(nn.Module):
        def forward(self, first: Any, second: Any = torch.ones(1)) -> Any:  # noqa: B008 - what users write
            return first + second

    inference = poptorch.inferenceModel(Summed().eval())
    assert [inference(torch.ones(1)).item(), inference(torch.ones(1), second=torch.zeros(1)).item()] == [2.0, 1.0]
    with pytest.raises(poptorch.Error, match="Mandatory parameter first missing"):
        inference()


class Either(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(1, 2)

    def forward(self, inputs: Any, target: Any = None) -> Any:
        found = self.layer(inputs)
        return (found, nn.functional.cross_entropy(found, target)) if self.training else found


def test_eval_of_the_model_that_an_inference_model_shows_counts_until_it_is_compiled(
    poptorch: Any, tmp_path: Any
) -> None:
    """As PopTorch's own tests validate with what poptorch.load returned; the user's own model trains on."""

    one, target = torch.ones(1, 1), torch.tensor([1])
    poptorch.trainingModel(Either()).compileAndExport(str(tmp_path / "exported"), one, target)
    training = poptorch.load(str(tmp_path / "exported"))
    validation = poptorch.inferenceModel(training)
    validation.model.eval()
    training(one, target)
    before = training.model.layer.bias.tolist()
    assert validation(one).shape == (1, 2)
    training(one, target)
    assert training.model.training
    assert training.model.layer.bias.tolist() != before
    assert torch.allclose(validation(one), training.model.layer(one))


def test_tensors_without_values_are_refused(poptorch: Any) -> None:
    with pytest.raises(poptorch.Error, match=r"Zero-sized tensors are unsupported \(Got shape \[0, 2\]\)"):
        poptorch.inferenceModel(nn.Linear(2, 1).eval())(torch.ones(0, 2))


def test_levels_of_the_log(poptorch: Any) -> None:
    for level in (0, 4, "TRACE", "OFF", "WARN"):
        poptorch.setLogLevel(level)
    with pytest.raises(ValueError, match="Invalid log level integer 5"):
        poptorch.setLogLevel(5)
    with pytest.raises(
        ValueError, match=r"Unknown log level: loud\. Valid values are DEBUG, ERR, INFO, OFF, TRACE and WARN"
    ):
        poptorch.setLogLevel("loud")


def test_errors_to_test_a_program_by(poptorch: Any) -> None:
    kinds = poptorch.poptorch_core.TestErrorType
    for kind, raised, name in (
        (kinds.PoplarRecoverableFullReset, poptorch.RecoverableError, "poplar_recoverable_runtime_error"),
        (kinds.PoplarUnrecoverable, poptorch.UnrecoverableError, "poplar_unrecoverable_runtime_error"),
        (kinds.PoplarLinkError, poptorch.Error, "poplar_link_error"),
    ):
        with pytest.raises(raised) as error:
            poptorch.poptorch_core._throwTestError(kind)
        assert error.value.type == name
        assert "throwTestError::topLevel" in error.value.location
        assert "throwTestError" not in error.value.message
        assert "throwTestError" in str(error.value)


def test_attributes_of_operations_change_nothing(poptorch: Any) -> None:
    class Tagged(nn.Module):
        def forward(self, values: Any) -> Any:
            with poptorch.Attribute(__outline={"layer": "first"}):
                return values + 1

    assert poptorch.inferenceModel(Tagged().eval())(torch.ones(1)).item() == 2


def test_a_device_that_is_asked_for_by_number_is_held_by_one_model(poptorch: Any, monkeypatch: Any) -> None:
    monkeypatch.delenv("POPTORCH_WAIT_FOR_IPU", raising=False)
    one, first, second = (
        torch.ones(1, 1),
        *(poptorch.inferenceModel(nn.Linear(1, 1).eval(), poptorch.Options().useIpuId(1)) for _ in range(2)),
    )
    other = poptorch.inferenceModel(nn.Linear(1, 1).eval(), poptorch.Options().useIpuId(2))
    first(one)
    other(one)
    with pytest.raises(poptorch.Error, match="Failed to acquire device 1"):
        second.compile(one)
    first.detachFromDevice()
    with pytest.raises(poptorch.Error, match="Device is not attached"):
        first.detachFromDevice()
    second.compile(one)
    assert second.isAttachedToDevice()
