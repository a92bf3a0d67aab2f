"""What tasks on images share: normalisation on the device, and shifts of whole batches on the host."""

from __future__ import annotations

from typing import Any, Optional

import numpy as np
import torch

from trainjob.contract.manifest import FILE_NAME
from trainjob.data.checking import sha256_of
from trainjob.data.shards import DataSet
from trainjob.train.draws import Draws
from trainjob.train.sources import Augment, ShardSource
from trainjob.train.tasks.base import TaskData


class Normalise:
    """(image ÷ maximum − mean) ÷ std, channel by channel, on whatever device the images are on."""

    def __init__(self, data_set: DataSet) -> None:
        manifest = data_set.manifest
        mean = torch.tensor(manifest.mean, dtype=torch.float64).view(-1, 1, 1)
        std = torch.tensor(manifest.std, dtype=torch.float64).view(-1, 1, 1)
        self._scale = 1.0 / (manifest.maximum * std)  # (channels, 1, 1)
        self._offset = mean / std

    def __call__(self, images: Any, dtype: torch.dtype) -> Any:
        """Return uint8 images (n, channels, height, width) as numbers of type `dtype` about 0."""
        if self._scale.dtype != dtype or self._scale.device != images.device:
            self._scale = self._scale.to(images.device, dtype)
            self._offset = self._offset.to(images.device, dtype)
        return images.to(dtype).mul_(self._scale).sub_(self._offset)


def shifts(most: int) -> Augment:
    """Return an augmentation that moves every image by up to `most` pixels each way; zeros move in."""

    def shift(images: Any, draws: Draws) -> Any:
        samples, channels, height, width = images.shape
        padded = np.zeros((samples, channels, height + 2 * most, width + 2 * most), images.dtype)
        padded[:, :, most : most + height, most : most + width] = images
        size = 2 * most + 1
        # Every position of a window of the image's size: (samples, channels, size, size, height, width), no copy.
        windows = np.lib.stride_tricks.as_strided(
            padded, (samples, channels, size, size, height, width), padded.strides[:2] + padded.strides[2:] * 2
        )
        chosen = windows[np.arange(samples), :, draws.integers(0, size), draws.integers(0, size)]
        return np.ascontiguousarray(chosen)

    return shift


def image_data(data_set: DataSet, augment: Optional[Augment] = None) -> TaskData:
    """Return splits "train" (augmented) and "test" of `data_set` as a task's data."""
    held_out: Optional[ShardSource] = None
    if "test" in data_set.manifest.splits:
        held_out = ShardSource(data_set.split("test"))
    return TaskData(
        train=ShardSource(data_set.split("train"), augment),
        held_out=held_out,
        normalise=Normalise(data_set),
        identity=sha256_of(data_set.folder / FILE_NAME),
    )
