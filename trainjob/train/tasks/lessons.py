"""The IPU lessons' training in small: a Dataset of colour images, each mirrored by chance, and a net of one glance.

What it takes is the loading of single samples, as in the lessons; it is there to be measured and not to learn.
"""

from __future__ import annotations

from typing import Any, Dict, Tuple

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import Dataset

from trainjob.train.draws import DATA, key
from trainjob.train.tasks.base import DataPlace, TaskData

_DIFFERENT = 1000  # images; further ones are these again
_CLASSES = 10


class Lessons:
    """Made-up images of 3 × 32 × 32 bytes; two linear layers on what is left of them after pooling."""

    def build_model(self) -> nn.Module:
        """Return the net: (n, 3, 32, 32) → (n, 10)."""
        layers = (nn.AvgPool2d(8), nn.Flatten(), nn.Linear(48, 32), nn.ReLU(), nn.Linear(32, _CLASSES))
        return nn.Sequential(*layers)

    def open_data(self, place: DataPlace) -> TaskData:
        """Return as many images as the job counts on, equal on every instance; none are held out."""
        return TaskData(train=Images(place.samples or _DIFFERENT, place.seed), normalise=_normalise)

    def loss(self, outputs: Any, targets: Any) -> Any:
        """Return the mean cross-entropy."""
        return functional.cross_entropy(outputs, targets)

    def metrics(self, outputs: Any, targets: Any) -> Dict[str, Any]:
        """Return the share of images whose largest output is their label's."""
        return {"accuracy": (outputs.argmax(1) == targets).to(torch.float32).mean()}


class Images(Dataset):  # type: ignore[type-arg] # torch 1.10's takes no type
    """Random images with random labels."""

    def __init__(self, samples: int, seed: int) -> None:
        generator = torch.Generator().manual_seed(key(seed, DATA) >> 1)
        self._samples = samples
        self._images = torch.randint(0, 256, (_DIFFERENT, 3, 32, 32), dtype=torch.uint8, generator=generator)
        self._labels = torch.randint(0, _CLASSES, (_DIFFERENT,), generator=generator)

    def __len__(self) -> int:
        return self._samples

    def __getitem__(self, number: int) -> Tuple[Any, Any]:
        """Return image and label."""
        image, label = self._images[number % _DIFFERENT], self._labels[number % _DIFFERENT]
        return (image.flip(2) if torch.rand(()) < 0.5 else image), label


def _normalise(images: Any, dtype: torch.dtype) -> Any:
    return images.to(dtype) / 127.5 - 1.0
