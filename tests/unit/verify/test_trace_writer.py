"""What a rank writes down of its updates, and what a trial tells of a model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from trainjob.contract.paths import RunPaths
from trainjob.train.engines.trial import is_repeatable, reads_buffers
from trainjob.train.recording.trace import TraceWriter
from trainjob.verify.tasks import traces


def write(folder: Path, inputs: Any, targets: Any, *, attempt: int = 1, factor: float = 1.0) -> Any:
    folder.mkdir(exist_ok=True)
    trace, model = TraceWriter(RunPaths(folder), 0, attempt), nn.Linear(2, 1, bias=False)
    nn.init.constant_(model.weight, 1.0)
    trace.model(model, repeatable=True, reads_buffers=False)
    trace.micro_batch(0, inputs, targets)
    (model(torch.ones(1, 2)).sum() * factor).backward()
    trace.gradients(model)
    trace.weights(1, model)
    return traces.read(RunPaths(folder)).update(1)


NESTED: dict[str, Any] = {
    "image": torch.arange(6.0).reshape(3, 2),
    "more": (torch.arange(3), [torch.ones(3, 1, dtype=torch.bfloat16)]),
}


def test_samples_are_identified_by_all_their_values_in_any_place(tmp_path: Path) -> None:
    targets = torch.tensor([0, 1, 0])
    ((first, second, third),) = write(tmp_path / "a", NESTED, targets).samples
    assert len({first, second, third}) == 3
    turned = {"image": NESTED["image"].flip(0), "more": (torch.arange(3).flip(0), NESTED["more"][1])}
    assert write(tmp_path / "b", turned, targets.flip(0)).samples == ((third, second, first),)
    ((other, *_),) = write(tmp_path / "c", NESTED, torch.tensor([5, 1, 0])).samples
    assert other != first


def test_gradients_and_weights_are_kept_with_a_digest_of_each(tmp_path: Path) -> None:
    once = write(tmp_path / "a", torch.ones(1, 2), torch.ones(1))
    again = write(tmp_path / "b", torch.ones(1, 2), torch.ones(1))
    twice = write(tmp_path / "c", torch.ones(1, 2), torch.ones(1), factor=2.0)
    assert once.gradients["weight"].tolist() == [[1.0, 1.0]]
    assert twice.gradients["weight"].tolist() == [[2.0, 2.0]]
    assert once.gradient_digests == again.gradient_digests != twice.gradient_digests
    assert once.parameter_digests == twice.parameter_digests


def test_a_resumed_attempt_writes_its_update_again(tmp_path: Path) -> None:
    write(tmp_path / "a", torch.zeros(1, 2), torch.ones(1))
    again = write(tmp_path / "a", torch.ones(1, 2), torch.ones(1), attempt=2)
    assert again.samples == write(tmp_path / "b", torch.ones(1, 2), torch.ones(1)).samples


class Running(nn.Module):
    mean: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, inputs: Any) -> Any:
        self.mean = self.mean + inputs.mean(0)
        return inputs - self.mean


class Own(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.generator = torch.Generator().manual_seed(0)

    def forward(self, inputs: Any) -> Any:
        return inputs * torch.rand(inputs.shape, generator=self.generator)


@pytest.mark.parametrize(
    ("model", "repeats", "reads"),
    [
        (nn.BatchNorm1d(4), True, False),
        (nn.Dropout(), True, False),
        (Running(), True, True),
        (Own(), False, True),
    ],
)
def test_two_forward_passes_tell_draws_and_buffers_that_are_read(model: Any, repeats: bool, reads: bool) -> None:
    before = {name: value.clone() for name, value in model.named_buffers()}

    def inputs() -> Any:
        torch.manual_seed(0)
        return torch.arange(8.0).reshape(2, 4)

    assert is_repeatable(model, inputs) is repeats
    assert reads_buffers(model, inputs) is reads
    assert all(torch.equal(value, before[name]) for name, value in model.named_buffers())


def test_a_trace_of_samples_alone_writes_no_tensors(tmp_path: Path) -> None:
    trace, model = TraceWriter(RunPaths(tmp_path), 0, 1, stream=True, full=False), nn.BatchNorm1d(2)
    trace.model(model, repeatable=True, reads_buffers=False)
    trace.micro_batch(0, torch.zeros(2, 2), torch.zeros(2))
    trace.gradients(model)
    trace.weights(1, model)
    found = traces.read(RunPaths(tmp_path))
    assert (found.updates, len(found.samples(1)[0]), found.stream) == ((1,), 2, True)
    assert found.buffers == {"running_mean", "running_var", "num_batches_tracked"}
    assert list((tmp_path / "trace").glob("*.safetensors")) == []
