"""digits-cnn: a small convolutional net for handwritten digits of 8 × 8 pixels."""

from __future__ import annotations

from torch import nn

from trainjob.contract.errors import UserError
from trainjob.train.samples.augmentation import ShiftAndFlip
from trainjob.train.tasks.base import DataPlace, TaskData
from trainjob.train.tasks.images import ImageClassifier, image_data

_SHAPE = (1, 8, 8)
_CLASSES = 10


class DigitsCnn(ImageClassifier):
    """Two convolutions and two linear layers; `width` channels in the first, twice as many in the second."""

    def __init__(self, width: int = 24, hidden: int = 64, dropout: float = 0.1, shift: int = 1) -> None:
        if width < 1 or hidden < 1 or not 0 <= dropout < 1 or not 0 <= shift < 8:
            raise UserError(
                "digits-cnn takes width and hidden ≥ 1, 0 ≤ dropout < 1 and 0 ≤ shift < 8 pixels, and was given "
                "width=%s hidden=%s dropout=%s shift=%s" % (width, hidden, dropout, shift),
                "Correct it with --set, as in --set width=24",
            )
        self.width, self.hidden, self.dropout, self.shift = width, hidden, dropout, shift

    def build_model(self) -> nn.Module:
        """Return the net: (n, 1, 8, 8) → (n, 10)."""
        return nn.Sequential(
            nn.Conv2d(1, self.width, 3, padding=1),  # (n, width, 8, 8)
            nn.ReLU(),
            nn.MaxPool2d(2),  # (n, width, 4, 4)
            nn.Conv2d(self.width, 2 * self.width, 3, padding=1),  # (n, 2 × width, 4, 4)
            nn.ReLU(),
            nn.Flatten(),
            nn.Dropout(self.dropout),
            nn.Linear(2 * self.width * 16, self.hidden),
            nn.ReLU(),
            nn.Linear(self.hidden, _CLASSES),
        )

    def open_data(self, place: DataPlace) -> TaskData:
        """Return the digits; training images are shifted by up to `shift` pixels."""
        return image_data(place.data_set(_SHAPE, _CLASSES), ShiftAndFlip(self.shift) if self.shift else None)
