"""First weights from a file: names and shapes are compared, and what was trained since goes before them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.runs_at_work import make_run, tensors, train_here, write_job
from trainjob.records import checkpoints
from trainjob.train.recording import safetensors
from trainjob.train.tasks.resnets import ResNet


def trained(folder: Path, **changes: Any) -> Any:
    run = make_run(folder, updates=3, **changes)
    assert train_here(run) == 0
    return run


def test_a_run_begins_with_the_weights_of_a_file(tmp_path: Path) -> None:
    first = trained(tmp_path / "first")
    file = checkpoints.folders(first.checkpoints)[0] / checkpoints.MODEL
    # A learning rate of nothing: the weights stay as they came.
    second = trained(tmp_path / "second", init_from=str(file), learning_rate=1e-300, seed=7)
    for name, weight in tensors(second).items():
        assert torch.equal(weight, tensors(first)[name]), name


def test_a_resumed_run_goes_on_from_its_checkpoint_and_needs_the_file_no_more(tmp_path: Path) -> None:
    first = trained(tmp_path / "first")
    file = tmp_path / "first.safetensors"
    (checkpoints.folders(first.checkpoints)[0] / checkpoints.MODEL).rename(file)
    second = trained(tmp_path / "second", init_from=str(file))
    file.unlink()
    write_job(second, updates=5, init_from=str(file))
    assert train_here(second, attempt=2) == 0


@pytest.mark.parametrize(
    ("change", "reported"),
    [
        (lambda given: given.pop("0.weight"), "it lacks 0.weight"),
        (lambda given: given.update(extra=torch.zeros(2)), "the model does not have extra"),
        (lambda given: given.update({"0.bias": torch.zeros(5)}), "0.bias is (5,) in the file and (24,) in the model"),
    ],
)
def test_what_differs_is_listed(tmp_path: Path, capfd: pytest.CaptureFixture[str], change: Any, reported: str) -> None:
    first = trained(tmp_path / "first")
    given = tensors(first)
    change(given)
    file = tmp_path / "given.safetensors"
    safetensors.save(file, given)
    second = make_run(tmp_path / "second", updates=3, init_from=str(file))
    assert train_here(second) == 1
    output = capfd.readouterr().err
    assert f"--init-from {file} holds the weights of another model than task digits-cnn builds" in output
    assert reported in output


@pytest.mark.parametrize(
    ("content", "reported"), [(None, "can't be read: No such file"), (b"nothing", "not in the safet")]
)
def test_a_file_that_is_none(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], content: bytes | None, reported: str
) -> None:
    file = tmp_path / "given.safetensors"
    if content is not None:
        file.write_bytes(content)
    run = make_run(tmp_path / "run", updates=3, init_from=str(file))
    assert train_here(run) == 1
    assert reported in capfd.readouterr().err


def test_weights_by_torchvisions_names_load_into_a_resnet(tmp_path: Path) -> None:
    """torchvision names its ResNet-50 so; here are all names of its state dict that are not repeated by block."""
    names = set(ResNet((3, 4, 6, 3), 1000).state_dict())
    assert {"conv1.weight", "bn1.running_mean", "layer1.0.downsample.0.weight", "layer4.2.conv3.weight"} < names
    assert {"layer3.5.bn2.num_batches_tracked", "fc.weight", "fc.bias"} < names
    assert len(names) == 320
    file = tmp_path / "resnet50.safetensors"
    safetensors.save(file, {name: value.clone() for name, value in ResNet((3, 4, 6, 3), 1000).state_dict().items()})
    options = {"classes": 1000}
    facts: dict[str, Any] = {"task": "cifar10-resnet50", "data": "synthetic", "task_options": options, "samples": None}
    run = make_run(tmp_path / "run", **facts, updates=1, micro_batch=2, trace="samples", init_from=str(file))
    assert train_here(run) == 0
    assert json.loads(run.progress.read_text())["update"] == 1
