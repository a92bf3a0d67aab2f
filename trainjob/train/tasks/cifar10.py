"""cifar10-resnet50 and cifar10-resnet101: the lessons' image classification."""

from __future__ import annotations

from typing import Any, Dict, Tuple

import torch
from torch import nn
from torch.nn import functional

from trainjob.contract.errors import UserError
from trainjob.train.augmentation import ShiftAndFlip
from trainjob.train.tasks.base import DataPlace, TaskData
from trainjob.train.tasks.images import image_data
from trainjob.train.tasks.resnet import ResNet

_IMAGE_SIZES = (32, 64)


class Cifar10ResNet50:
    """ResNet-50 on colour images of any size, resized on the device to `image_size`.

    Training images are moved by up to `shift` pixels and mirrored (`flip`). The lessons leave the model its 1,000
    classes (`classes=1000`) and see 64 pixels (`image_size=64`). With `small_stem` a first convolution for small
    images takes the place of torchvision's: better here, but its weights don't fit.
    """

    blocks: Tuple[int, ...] = (3, 4, 6, 3)
    # Where a second IPU takes over: after 7 of 16 blocks, the share that the lessons give the first IPU of ResNet-101.
    split_points: Tuple[str, ...] = ("layer3.0",)

    def __init__(
        self, classes: int = 10, image_size: int = 32, shift: int = 4, flip: bool = True, small_stem: bool = False
    ) -> None:
        if classes < 1 or image_size not in _IMAGE_SIZES or not 0 <= shift < 32:
            raise UserError(
                "a ResNet on CIFAR-10 takes classes ≥ 1, image_size 32 or 64 and 0 ≤ shift < 32 pixels, and was given "
                "classes=%d image_size=%d shift=%d" % (classes, image_size, shift)
            )
        self.classes, self.image_size, self.small_stem = classes, image_size, small_stem
        self.shift, self.flip = shift, flip

    def build_model(self) -> nn.Module:
        """Return the net: (n, 3, image_size, image_size) → (n, classes)."""
        return ResNet(self.blocks, self.classes, self.small_stem)

    def open_data(self, place: DataPlace) -> TaskData:
        """Return the images that the job names: cifar10, or any data set of three channels."""
        data_set = place.data_set((3, None, None), self.classes)
        return image_data(data_set, ShiftAndFlip(self.shift, self.flip), self.image_size)

    def loss(self, outputs: Any, targets: Any) -> Any:
        """Return the mean cross-entropy."""
        return functional.cross_entropy(outputs, targets)

    def metrics(self, outputs: Any, targets: Any) -> Dict[str, Any]:
        """Return the share of images whose largest output is their label's."""
        return {"accuracy": (outputs.argmax(1) == targets).to(torch.float32).mean()}


class Cifar10ResNet101(Cifar10ResNet50):
    """ResNet-101, otherwise as ResNet-50."""

    blocks = (3, 4, 23, 3)
    split_points = ("layer3.8",)  # as in the lessons
