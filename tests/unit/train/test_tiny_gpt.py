"""tiny-gpt sees no future, starts from knowing nothing, and learns; imagenet-resnet50 is the net of the recipe."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.plan_cases import local, planned
from tests.support.runs_at_work import lines, make_run, train_here
from trainjob.contract.errors import UserError
from trainjob.train.optimizers import parameter_groups
from trainjob.train.tasks.resnets import ImageNetResNet50
from trainjob.train.tasks.tiny_gpt import TinyGpt


def test_a_token_is_predicted_from_those_before_it_alone() -> None:
    torch.manual_seed(0)
    model = TinyGpt(context=8, width=16, layers=2).build_model().eval()
    tokens = torch.randint(256, (2, 8))
    changed = tokens.clone()
    changed[:, 5] = (tokens[:, 5] + 1) % 256
    outputs, others = model(tokens), model(changed)
    assert outputs.shape == (2, 8, 256)
    torch.testing.assert_close(outputs[:, :5], others[:, :5])
    assert all(not torch.allclose(outputs[:, place], others[:, place]) for place in (5, 6, 7))


def test_first_weights_know_nothing_and_a_few_updates_teach_something(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", task="tiny-gpt", micro_batch=8, updates=40, log_every=1, schedule="constant")
    assert train_here(run) == 0
    losses = [line["loss"] for line in lines(run, "train")]
    assert losses[0] == pytest.approx(math.log(256), abs=0.1)
    assert lines(run, "evaluation")[-1]["loss"] < 4.0


def test_its_norms_and_biases_do_not_decay() -> None:
    decayed, exempt = parameter_groups(TinyGpt(layers=1).build_model(), TinyGpt())
    assert {weight.dim() for weight in decayed["params"]} == {2}
    assert len(exempt["params"]) == 10
    assert exempt["weight_decay"] == 0.0


@pytest.mark.parametrize("options", [{"width": 10}, {"context": 0}, {"dropout": 1.0}])
def test_sizes_that_fit_no_net_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="tiny-gpt takes sizes ≥ 1, a width that its heads divide and 0 ≤ dropout < 1"):
        TinyGpt(**options)


def test_imagenet_resnet50_is_the_net_and_the_recipe() -> None:
    task = ImageNetResNet50()
    model = task.build_model()
    assert sum(weight.numel() for weight in model.parameters()) == 25_557_032  # torchvision's resnet50
    assert ImageNetResNet50(classes=5, image_size=32).build_model()(torch.zeros(2, 3, 32, 32)).shape == (2, 5)
    plan = planned(local(), task="imagenet-resnet50", instances=8)
    assert plan.batch is not None
    assert (plan.batch.global_batch, plan.batch.epochs, plan.batch.updates_per_epoch) == (256, 90, 5004)
    with pytest.raises(UserError, match="image_size ≥ 32"):
        ImageNetResNet50(image_size=16)
