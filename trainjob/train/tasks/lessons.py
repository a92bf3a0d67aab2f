"""A small version of the IPU lessons' training: a Dataset of colour images, mirrored at random, and a tiny net.

Its time goes into loading single samples, as in the lessons. It is meant for measurements, not for learning.
"""

from __future__ import annotations

from typing import Tuple

import torch
from torch import nn
from torch.utils.data import Dataset

from trainjob.train.samples.draws import DATA, key
from trainjob.train.tasks.base import DataPlace, TaskData
from trainjob.train.tasks.images import ImageClassifier

_DIFFERENT = 1000  # images; further ones repeat them
_CLASSES = 10


class Lessons(ImageClassifier):
    """Random images of 3 × 32 × 32 bytes; pooling and two linear layers."""

    def build_model(self) -> nn.Module:
        """Return the net: (n, 3, 32, 32) → (n, 10)."""
        layers = (nn.AvgPool2d(8), nn.Flatten(), nn.Linear(48, 32), nn.ReLU(), nn.Linear(32, _CLASSES))
        return nn.Sequential(*layers)

    def open_data(self, place: DataPlace) -> TaskData:
        """Return as many images as the job plans, the same on every instance; none are held out."""
        train = Images(place.samples or _DIFFERENT, place.seed)
        return TaskData(train, normalise=lambda images, dtype: images.to(dtype) / 127.5 - 1.0)


class Images(Dataset):  # type: ignore[type-arg] # not generic in torch 1.10
    """Random images with random labels."""

    def __init__(self, samples: int, seed: int) -> None:
        generator = torch.Generator().manual_seed(key(seed, DATA) >> 1)
        self._samples = samples
        self._images = torch.randint(0, 256, (_DIFFERENT, 3, 32, 32), dtype=torch.uint8, generator=generator)
        self._labels = torch.randint(0, _CLASSES, (_DIFFERENT,), generator=generator)

    def __len__(self) -> int:
        return self._samples

    def __getitem__(self, number: int) -> Tuple[torch.Tensor, torch.Tensor]:
        """Return image and label."""
        image, label = self._images[number % _DIFFERENT], self._labels[number % _DIFFERENT]
        return (image.flip(2) if torch.rand(()) < 0.5 else image), label
