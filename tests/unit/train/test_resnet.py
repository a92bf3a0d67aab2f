"""The ResNets have the names and shapes of torchvision's state dict, so that its weights load."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from trainjob.contract import tasks
from trainjob.contract.errors import UserError
from trainjob.data.prepare import prepare
from trainjob.train.tasks.base import DataPlace
from trainjob.train.tasks.digits_cnn import DigitsCnn
from trainjob.train.tasks.loading import load
from trainjob.train.tasks.resnets import Cifar10ResNet50, Cifar10ResNet101

BLOCKS = {50: (3, 4, 6, 3), 101: (3, 4, 23, 3)}
PARAMETERS = {50: 25_557_032, 101: 44_549_160}  # as torchvision counts them, with 1,000 classes
TASKS = {50: Cifar10ResNet50, 101: Cifar10ResNet101}


def norm(name: str, channels: int) -> dict[str, tuple[int, ...]]:
    names = ("weight", "bias", "running_mean", "running_var")
    return {**{f"{name}.{one}": (channels,) for one in names}, f"{name}.num_batches_tracked": ()}


def torchvisions(depth: int, classes: int) -> dict[str, tuple[int, ...]]:
    """Return names and shapes of torchvision.models.resnet50 or 101, in its order."""
    shapes = {"conv1.weight": (64, 3, 7, 7), **norm("bn1", 64)}
    channels = 64
    for stage, (blocks, width) in enumerate(zip(BLOCKS[depth], (64, 128, 256, 512), strict=True), 1):
        for block in range(blocks):
            name = f"layer{stage}.{block}"
            shapes |= {f"{name}.conv1.weight": (width, channels, 1, 1), **norm(f"{name}.bn1", width)}
            shapes |= {f"{name}.conv2.weight": (width, width, 3, 3), **norm(f"{name}.bn2", width)}
            shapes |= {f"{name}.conv3.weight": (4 * width, width, 1, 1), **norm(f"{name}.bn3", 4 * width)}
            if block == 0:
                shapes[f"{name}.downsample.0.weight"] = (4 * width, channels, 1, 1)
                shapes |= norm(f"{name}.downsample.1", 4 * width)
            channels = 4 * width
    return {**shapes, "fc.weight": (classes, 2048), "fc.bias": (classes,)}


@pytest.fixture(scope="module")
def models() -> dict[int, nn.Module]:
    return {depth: task(classes=1000).build_model() for depth, task in TASKS.items()}


@pytest.mark.parametrize("depth", [50, 101])
def test_names_shapes_and_number_of_parameters_are_torchvisions(models: Any, depth: int) -> None:
    found = {name: tuple(value.shape) for name, value in models[depth].state_dict().items()}
    assert list(found.items()) == list(torchvisions(depth, 1000).items())
    assert sum(weight.numel() for weight in models[depth].parameters()) == PARAMETERS[depth]


@pytest.mark.parametrize("depth", [50, 101])
def test_the_split_names_modules_and_the_plan_knows_of_it(models: Any, depth: int) -> None:
    task = TASKS[depth]
    modules = dict(models[depth].named_modules())
    assert all(name in modules for name in task.split_points)
    facts = tasks.BUILT_IN[f"cifar10-resnet{depth}"]
    assert set(facts.stages) == {1, len(task.split_points) + 1}
    assert type(load(facts.entry, {}, Path("nowhere"))) is task


def test_strides_make_the_sizes_of_the_paper(models: Any) -> None:
    # 224 pixels become 56, 28, 14, 7 in the four stages; 64 become 16, 8, 4, 2.
    sizes = []
    for stage in ("layer1", "layer2", "layer3", "layer4"):
        models[50].get_submodule(stage).register_forward_hook(lambda module, inputs, out: sizes.append(out.shape[-1]))
    with torch.no_grad():
        assert models[50].eval()(torch.zeros(1, 3, 64, 64)).shape == (1, 1000)
    assert sizes == [16, 8, 4, 2]
    small = Cifar10ResNet50(small_stem=True).build_model().eval()
    assert small.state_dict()["conv1.weight"].shape == (64, 3, 3, 3)
    with torch.no_grad():
        first = nn.Sequential(small.get_submodule("conv1"), small.get_submodule("maxpool"))
        assert first(torch.zeros(1, 3, 32, 32)).shape == (1, 64, 32, 32)


def test_at_first_a_block_passes_its_input_and_more_on() -> None:
    # He's rule over what goes out: the variance of a convolution's weights is 2 ÷ (outputs × kernel).
    block = Cifar10ResNet50().build_model().layer3[1]
    assert block.conv2.weight.std().item() == pytest.approx((2 / (256 * 9)) ** 0.5, rel=0.02)
    assert block.conv3.weight.std().item() == pytest.approx((2 / 1024) ** 0.5, rel=0.02)


# -- data --------------------------------------------------------------------------------------


def place(folder: Path, name: str = "synthetic", **more: Any) -> DataPlace:
    return DataPlace(name, folder, 0, reads_every_byte=True, **more)


def test_images_are_normalised_with_the_division_and_resized(tmp_path: Path) -> None:
    prepare("synthetic", tmp_path, samples=8, held_out=4)
    data = Cifar10ResNet50(image_size=64).open_data(place(tmp_path))
    assert data.normalise is not None
    images, _ = data.held_out.gather(torch.arange(4).numpy(), None)
    found = data.normalise(images, torch.float64)
    assert found.shape == (4, 3, 64, 64)
    expected = (images.double() / 255 - 0.5) / 0.25
    expected = torch.nn.functional.interpolate(expected, scale_factor=2, mode="bilinear", align_corners=False)
    assert torch.allclose(found, expected)
    unchanged = Cifar10ResNet50().open_data(place(tmp_path)).normalise
    assert unchanged is not None
    as_they_are = unchanged(images, torch.float32)
    assert as_they_are.shape == (4, 3, 32, 32)
    assert as_they_are.abs().max() <= 2


def test_other_sizes_of_images_are_resized_too(tmp_path: Path) -> None:
    prepare("synthetic", tmp_path, samples=8, held_out=4, shape=(3, 64, 64))
    data = Cifar10ResNet50().open_data(place(tmp_path))
    assert data.normalise is not None
    images, _ = data.held_out.gather(torch.arange(2).numpy(), None)
    assert data.normalise(images, torch.float32).shape == (2, 3, 32, 32)


def test_synthetic_data_fits_every_task_unprepared(tmp_path: Path) -> None:
    for task, shape in ((Cifar10ResNet50(), (3, 32, 32)), (DigitsCnn(), (1, 8, 8))):
        data = task.open_data(place(tmp_path, samples=40))
        assert (len(data.train), len(data.held_out)) == (40, 10)
        images, labels = data.train.gather(torch.arange(40).numpy(), None)
        assert tuple(images.shape[1:]) == shape
        assert labels.max() < 10
        assert data.identity == task.open_data(place(tmp_path, samples=40)).identity
        assert data.identity != task.open_data(place(tmp_path, samples=41)).identity
    assert list(tmp_path.iterdir()) == []


def test_what_is_prepared_comes_before_what_is_made_up(tmp_path: Path) -> None:
    prepare("synthetic", tmp_path, samples=8, held_out=4)
    assert len(Cifar10ResNet50().open_data(place(tmp_path)).train) == 8
    with pytest.raises(UserError, match=r"shape \(3, 32, 32\) .* the task takes \(1, 8, 8\)"):
        DigitsCnn().open_data(place(tmp_path))


def test_data_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"digits has images of shape \(1, 8, 8\) .* takes \(3, any, any\)"):
        Cifar10ResNet50().open_data(place(tmp_path, "digits"))
    prepare("synthetic", tmp_path, samples=8, held_out=4, classes=11)
    with pytest.raises(UserError, match="11 classes and the task distinguishes 10"):
        Cifar10ResNet50().open_data(place(tmp_path))
    with pytest.raises(UserError, match=r"cifar10 is not prepared.*trainjob data prepare cifar10"):
        Cifar10ResNet50().open_data(place(tmp_path, "cifar10"))


@pytest.mark.parametrize("options", [{"classes": 0}, {"image_size": 48}, {"shift": 32}, {"shift": -1}])
def test_options_that_make_no_task_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=next(iter(options))):
        Cifar10ResNet50(**options)
