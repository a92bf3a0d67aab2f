"""Parts of tasks with images: normalisation on the device, the splits of a data set as sources, loss and metric."""

from __future__ import annotations

from typing import Dict, Optional, Union

import torch
from torch.nn import functional

from trainjob.data.manifest import ENCODED
from trainjob.data.shards import DataSet
from trainjob.train.samples.crops import CropSource, RawImages, ResizedCrop
from trainjob.train.samples.sources import Augment, ShardSource, Source
from trainjob.train.tasks.base import TaskData


class ImageClassifier:
    """The loss and the metric of a task that classifies images."""

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return the mean cross-entropy."""
        return functional.cross_entropy(outputs, targets)

    def metrics(self, outputs: torch.Tensor, targets: torch.Tensor) -> Dict[str, torch.Tensor]:
        """Return the share of images that are classified correctly."""
        return {"accuracy": (outputs.argmax(1) == targets).to(torch.float32).mean()}


class Normalise:
    """Computes (image ÷ maximum − mean) ÷ std per channel, on the images' own device.

    Afterwards, images of another size than `size` × `size` are resized bilinearly.
    """

    def __init__(self, data_set: DataSet, size: Optional[int] = None) -> None:
        manifest = data_set.manifest
        mean = torch.tensor(manifest.mean, dtype=torch.float64).view(-1, 1, 1)
        std = torch.tensor(manifest.std, dtype=torch.float64).view(-1, 1, 1)
        self._scale = 1.0 / (manifest.maximum * std)  # (channels, 1, 1)
        self._offset = mean / std
        self._size = None if size is None or manifest.shape[1:] == (size, size) else (size, size)

    def __call__(self, images: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """Return uint8 images (n, channels, height, width) as numbers of type `dtype` around 0."""
        if self._scale.dtype != dtype or self._scale.device != images.device:
            self._scale = self._scale.to(images.device, dtype)
            self._offset = self._offset.to(images.device, dtype)
        normalised = images.to(dtype).mul_(self._scale).sub_(self._offset)
        if self._size is None:
            return normalised
        return functional.interpolate(normalised, size=self._size, mode="bilinear", align_corners=False)


def image_data(
    data_set: DataSet, augment: Union[Augment, ResizedCrop, None] = None, size: Optional[int] = None
) -> TaskData:
    """Return splits "train" (augmented) and "test" of `data_set` as a task's data, resized to `size` pixels.

    The images of a `ResizedCrop` have its size already.
    """

    def source(name: str) -> Source:
        split = data_set.split(name)
        if data_set.manifest.kind == ENCODED:
            return CropSource(split.images, split.labels, augment)
        if isinstance(augment, ResizedCrop):
            return CropSource(RawImages(split.images), split.labels, augment)
        return ShardSource(split, augment)

    return TaskData(
        train=source("train"),
        held_out=source("test") if "test" in data_set.manifest.splits else None,
        normalise=Normalise(data_set, None if isinstance(augment, ResizedCrop) else size),
        identity=data_set.identity(),
    )
