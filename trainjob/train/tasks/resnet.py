"""ResNets with bottlenecks (He et al. 2015, stride in the 3 × 3 convolution), named as torchvision names them.

So torchvision's weights load, and its tools find the layers. The short stem is the usual one for small images.
"""

from __future__ import annotations

from typing import Any, List, Sequence

from torch import nn

_EXPANSION = 4  # of a bottleneck's channels in its last convolution


class Bottleneck(nn.Module):
    """1 × 1, 3 × 3, 1 × 1 convolutions beside a shortcut."""

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
        self.downsample: Any = None
        if stride != 1 or channels_in != channels_out:
            shortcut = nn.Conv2d(channels_in, channels_out, 1, stride=stride, bias=False)
            self.downsample = nn.Sequential(shortcut, nn.BatchNorm2d(channels_out))

    def forward(self, images: Any) -> Any:
        """(n, channels_in, h, w) → (n, 4 × width, h ÷ stride, w ÷ stride)."""
        shortcut = images if self.downsample is None else self.downsample(images)
        found = self.relu(self.bn1(self.conv1(images)))
        found = self.relu(self.bn2(self.conv2(found)))
        return self.relu(self.bn3(self.conv3(found)) + shortcut)


class ResNet(nn.Module):
    """A stem, four stages of bottlenecks, and one linear layer over their means."""

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
        _first_weights(self)

    def forward(self, images: Any) -> Any:
        """(n, 3, h, w) → (n, classes)."""
        found = self.maxpool(self.relu(self.bn1(self.conv1(images))))
        found = self.layer4(self.layer3(self.layer2(self.layer1(found))))
        return self.fc(self.avgpool(found).flatten(1))


def _stage(channels_in: int, width: int, blocks: int, stride: int) -> nn.Sequential:
    stage: List[nn.Module] = [Bottleneck(channels_in, width, stride)]
    stage += [Bottleneck(width * _EXPANSION, width, 1) for _ in range(1, blocks)]
    return nn.Sequential(*stage)


def _first_weights(model: nn.Module) -> None:
    """As torchvision: convolutions by He's rule over what goes out; BatchNorm begins as 1 and 0 by itself."""
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
