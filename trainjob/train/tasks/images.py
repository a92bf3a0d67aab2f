"""What tasks on images share: normalisation on the device, and their data set's splits as sources."""

from __future__ import annotations

from typing import Any, Optional

import torch
from torch.nn import functional

from trainjob.data.shards import DataSet
from trainjob.train.sources import Augment, ShardSource
from trainjob.train.tasks.base import TaskData


class Normalise:
    """(image ÷ maximum − mean) ÷ std, channel by channel, on whatever device the images are on.

    Images whose height and width are not `size` are resized after it, bilinearly.
    """

    def __init__(self, data_set: DataSet, size: Optional[int] = None) -> None:
        manifest = data_set.manifest
        mean = torch.tensor(manifest.mean, dtype=torch.float64).view(-1, 1, 1)
        std = torch.tensor(manifest.std, dtype=torch.float64).view(-1, 1, 1)
        self._scale = 1.0 / (manifest.maximum * std)  # (channels, 1, 1)
        self._offset = mean / std
        self._size = None if size is None or manifest.shape[1:] == (size, size) else (size, size)

    def __call__(self, images: Any, dtype: torch.dtype) -> Any:
        """Return uint8 images (n, channels, height, width) as numbers of type `dtype` about 0."""
        if self._scale.dtype != dtype or self._scale.device != images.device:
            self._scale = self._scale.to(images.device, dtype)
            self._offset = self._offset.to(images.device, dtype)
        normalised = images.to(dtype).mul_(self._scale).sub_(self._offset)
        if self._size is None:
            return normalised
        return functional.interpolate(normalised, size=self._size, mode="bilinear", align_corners=False)


def image_data(data_set: DataSet, augment: Optional[Augment] = None, size: Optional[int] = None) -> TaskData:
    """Return splits "train" (augmented) and "test" of `data_set` as a task's data; the model sees `size` pixels."""
    held_out: Optional[ShardSource] = None
    if "test" in data_set.manifest.splits:
        held_out = ShardSource(data_set.split("test"))
    return TaskData(
        train=ShardSource(data_set.split("train"), augment),
        held_out=held_out,
        normalise=Normalise(data_set, size),
        identity=data_set.identity(),
    )
