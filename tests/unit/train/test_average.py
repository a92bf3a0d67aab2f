"""The moving average of the weights: its formula, who sees it, and that nothing of it is lost."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from tests.support.runs_at_work import lines, make_run, tensors, train_here
from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths
from trainjob.lifecycle.export import export
from trainjob.records import checkpoints
from trainjob.records.files import DamagedError
from trainjob.train.engines.average import Average
from trainjob.train.recording import safetensors


def test_it_follows_weights_and_running_statistics() -> None:
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)).double()
    average = Average(model, 0.6)
    expected = {name: value.clone() for name, value in model.state_dict().items()}
    for update in range(20):
        with torch.no_grad():
            for tensor in model.state_dict().values():
                tensor.add_(update + 1)
        decay = min(0.6, (1 + update) / (10 + update))
        for name, value in model.state_dict().items():
            mean = decay * expected[name] + (1 - decay) * value
            expected[name] = mean if value.is_floating_point() else value.clone()
        average.follow(update)
    torch.testing.assert_close(average.tensors(), expected)


def test_it_takes_the_models_place_and_gives_it_back() -> None:
    first = nn.Linear(3, 2)
    model = nn.Sequential(first, nn.BatchNorm1d(2))
    average = Average(model, 0.9)
    with torch.no_grad():
        first.weight.add_(1)
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    average.follow(0)
    average.take_place()
    assert all(torch.equal(value, average.tensors()[name]) for name, value in model.state_dict().items())
    assert not torch.equal(first.weight, weights["0.weight"])
    average.give_place()
    assert all(torch.equal(value, weights[name]) for name, value in model.state_dict().items())


def averaged(run: RunPaths) -> dict[str, torch.Tensor]:
    folder = checkpoints.folders(run.checkpoints)[0]
    return safetensors.load(folder / checkpoints.AVERAGED)


def test_it_is_evaluated_and_exported_and_leaves_the_training_alone(tmp_path: Path) -> None:
    plain = make_run(tmp_path / "plain", updates=30)
    run = make_run(tmp_path / "run", updates=30, average_decay=0.95)
    assert train_here(plain) == train_here(run) == 0
    weights = tensors(run)
    assert all(torch.equal(value, weights[name]) for name, value in tensors(plain).items())
    assert lines(run, "evaluation")[-1]["loss"] != lines(plain, "evaluation")[-1]["loss"]
    # The averaged weights, trained on with no learning rate to speak of, give the loss that was evaluated.
    target = tmp_path / "averaged.safetensors"
    export(run, target, lambda _text: None, averaged=True)
    second = make_run(tmp_path / "second", updates=1, init_from=str(target), learning_rate=1e-30)
    assert train_here(second) == 0
    assert lines(second, "evaluation")[-1]["loss"] == pytest.approx(lines(run, "evaluation")[-1]["loss"], rel=1e-6)
    with pytest.raises(UserError, match="run plain keeps no average of its weights: leave out --averaged, or train"):
        export(plain, target, lambda _text: None, averaged=True)


def test_a_damaged_average_is_no_sound_checkpoint(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", updates=4, average_decay=0.95)
    assert train_here(run) == 0
    folder = checkpoints.folders(run.checkpoints)[0]
    (folder / checkpoints.AVERAGED).write_bytes(b"")
    with pytest.raises(DamagedError, match=r"averaged\.safetensors has 0 bytes and should have"):
        checkpoints.check(folder)
