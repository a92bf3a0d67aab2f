"""imagenet-resnet50: the classic recipe for ImageNet-1k, as settings.

90 epochs of SGD with momentum, global batch 256 at a learning rate of 0.1, divided by 10 every 30 epochs, weight decay
0.0001: known to reach about 76 % (He et al., 2015; Goyal et al., 2017, for larger batches with a scaled rate).
"""

from __future__ import annotations

from typing import Dict

import torch
from torch import nn
from torch.nn import functional

from trainjob.contract.errors import UserError
from trainjob.train.samples.crops import ResizedCrop
from trainjob.train.tasks.base import DataPlace, TaskData
from trainjob.train.tasks.cifar10 import ResNet
from trainjob.train.tasks.images import image_data

_SMALLEST = 32  # pixels: the net halves an image five times


class ImageNetResNet50:
    """ResNet-50 on colour images cut to `image_size` pixels, with torchvision's names of layers."""

    split_points = ("layer3.0",)

    def __init__(self, classes: int = 1000, image_size: int = 224, label_smoothing: float = 0.0) -> None:
        if classes < 1 or image_size < _SMALLEST or not 0 <= label_smoothing < 1:
            raise UserError(
                "imagenet-resnet50 takes classes ≥ 1, image_size ≥ %d and 0 ≤ label_smoothing < 1, and was given "
                "classes=%s image_size=%s label_smoothing=%s" % (_SMALLEST, classes, image_size, label_smoothing),
                "Correct it with --set, as in --set image_size=224",
            )
        self.classes, self.image_size, self.label_smoothing = classes, image_size, label_smoothing

    def build_model(self) -> nn.Module:
        """Return the net: (n, 3, image_size, image_size) → (n, classes)."""
        return ResNet((3, 4, 6, 3), self.classes)

    def open_data(self, place: DataPlace) -> TaskData:
        """Return the data set that the job names: random crops to train on, the middle of each held-out image."""
        return image_data(place.data_set((3, None, None), self.classes), ResizedCrop(self.image_size))

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return the mean cross-entropy."""
        return functional.cross_entropy(outputs, targets, label_smoothing=self.label_smoothing)

    def metrics(self, outputs: torch.Tensor, targets: torch.Tensor) -> Dict[str, torch.Tensor]:
        """Return the share of images that are classified correctly."""
        return {"accuracy": (outputs.argmax(1) == targets).to(torch.float32).mean()}
