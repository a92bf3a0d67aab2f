"""ResNets: cifar10-resnet50 and cifar10-resnet101, the lessons' image classification, and imagenet-resnet50.

They have bottlenecks (He et al. 2015, stride in the 3 × 3 convolution) and torchvision's names of layers. So
torchvision's weights load, and its tools find the layers. The small stem is the usual one for small images.
"""

from __future__ import annotations

from typing import List, Optional, Sequence, Tuple

import torch
from torch import nn
from torch.nn import functional

from trainjob.contract.errors import UserError
from trainjob.train.samples.augmentation import ShiftAndFlip
from trainjob.train.samples.crops import ResizedCrop
from trainjob.train.tasks.base import DataPlace, TaskData
from trainjob.train.tasks.images import ImageClassifier, image_data

_EXPANSION = 4  # factor of the channels in a bottleneck's last convolution
_SMALLEST_IMAGE = 32  # pixels: the net halves an image five times


class Bottleneck(nn.Module):
    """1 × 1, 3 × 3 and 1 × 1 convolutions, and a shortcut."""

    def __init__(self, channels_in: int, width: int, stride: int) -> None:
        super().__init__()
        channels_out = width * _EXPANSION
        self.conv1 = nn.Conv2d(channels_in, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride=stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, channels_out, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(channels_out)
        self.relu = nn.ReLU(inplace=True)
        self.downsample: Optional[nn.Module] = None
        if stride != 1 or channels_in != channels_out:
            shortcut = nn.Conv2d(channels_in, channels_out, 1, stride=stride, bias=False)
            self.downsample = nn.Sequential(shortcut, nn.BatchNorm2d(channels_out))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """(n, channels_in, h, w) → (n, 4 × width, h ÷ stride, w ÷ stride)."""
        shortcut = images if self.downsample is None else self.downsample(images)
        hidden = self.relu(self.bn1(self.conv1(images)))
        hidden = self.relu(self.bn2(self.conv2(hidden)))
        result: torch.Tensor = self.relu(self.bn3(self.conv3(hidden)) + shortcut)
        return result


class ResNet(nn.Module):
    """A stem, four stages of bottlenecks, average pooling and one linear layer."""

    def __init__(self, blocks: Sequence[int], classes: int, small_stem: bool = False) -> None:
        super().__init__()
        if small_stem:
            self.conv1 = nn.Conv2d(3, 64, 3, padding=1, bias=False)
        else:
            self.conv1 = nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool: nn.Module = nn.Identity() if small_stem else nn.MaxPool2d(3, stride=2, padding=1)
        self.layer1 = _stage(64, 64, blocks[0], stride=1)
        self.layer2 = _stage(256, 128, blocks[1], stride=2)
        self.layer3 = _stage(512, 256, blocks[2], stride=2)
        self.layer4 = _stage(1024, 512, blocks[3], stride=2)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(512 * _EXPANSION, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):  # as torchvision, by He's rule; BatchNorm starts with 1 and 0 anyway
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """(n, 3, h, w) → (n, classes)."""
        hidden = self.maxpool(self.relu(self.bn1(self.conv1(images))))
        hidden = self.layer4(self.layer3(self.layer2(self.layer1(hidden))))
        result: torch.Tensor = self.fc(self.avgpool(hidden).flatten(1))
        return result


def _stage(channels_in: int, width: int, blocks: int, stride: int) -> nn.Sequential:
    stage: List[nn.Module] = [Bottleneck(channels_in, width, stride)]
    stage += [Bottleneck(width * _EXPANSION, width, 1) for _ in range(1, blocks)]
    return nn.Sequential(*stage)


class Cifar10ResNet50(ImageClassifier):
    """ResNet-50 on colour images of any size, resized on the device to `image_size`.

    Training images are shifted by up to `shift` pixels and mirrored (`flip`). The lessons keep the model's 1,000
    classes (`classes=1000`) and resize to 64 pixels (`image_size=64`). `small_stem` replaces torchvision's first
    convolution by one for small images, which is better here, but torchvision's weights then don't fit.
    """

    blocks: Tuple[int, ...] = (3, 4, 6, 3)
    # The second IPU starts after 7 of 16 blocks: the same share as for ResNet-101 in the lessons.
    split_points: Tuple[str, ...] = ("layer3.0",)

    def __init__(
        self, classes: int = 10, image_size: int = 32, shift: int = 4, flip: bool = True, small_stem: bool = False
    ) -> None:
        if classes < 1 or image_size not in (32, 64) or not 0 <= shift < 32:
            raise UserError(
                "a ResNet on CIFAR-10 takes classes ≥ 1, image_size 32 or 64 and 0 ≤ shift < 32 pixels, and was given "
                "classes=%d image_size=%d shift=%d" % (classes, image_size, shift),
                "Correct it with --set, as in --set image_size=32",
            )
        self.classes, self.image_size, self.small_stem = classes, image_size, small_stem
        self.shift, self.flip = shift, flip

    def build_model(self) -> nn.Module:
        """Return the net: (n, 3, image_size, image_size) → (n, classes)."""
        return ResNet(self.blocks, self.classes, self.small_stem)

    def open_data(self, place: DataPlace) -> TaskData:
        """Return the data set that the job names: cifar10, or any other with three channels."""
        data_set = place.data_set((3, None, None), self.classes)
        return image_data(data_set, ShiftAndFlip(self.shift, self.flip), self.image_size)


class Cifar10ResNet101(Cifar10ResNet50):
    """ResNet-101, otherwise the same as ResNet-50."""

    blocks = (3, 4, 23, 3)
    split_points = ("layer3.8",)  # as in the lessons


class ImageNetResNet50(ImageClassifier):
    """ResNet-50 on colour images cut to `image_size` pixels: the classic recipe for ImageNet-1k, as settings.

    90 epochs of SGD with momentum, global batch 256 at a learning rate of 0.1, divided by 10 every 30 epochs, weight
    decay 0.0001: known to reach about 76 % (He et al., 2015; Goyal et al., 2017, scale the rate with the batch).
    """

    split_points = ("layer3.0",)

    def __init__(self, classes: int = 1000, image_size: int = 224, label_smoothing: float = 0.0) -> None:
        if classes < 1 or image_size < _SMALLEST_IMAGE or not 0 <= label_smoothing < 1:
            raise UserError(
                "imagenet-resnet50 takes classes ≥ 1, image_size ≥ %d and 0 ≤ label_smoothing < 1, and was given "
                "classes=%s image_size=%s label_smoothing=%s" % (_SMALLEST_IMAGE, classes, image_size, label_smoothing),
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
