# jpeg_task.py
"""A task on a folder of JPEGs: a small net, and random crops that are resized and flipped."""

import torch
from torch import nn

from trainjob.train.samples.crops import ResizedCrop
from trainjob.train.tasks.images import image_data


class Jpegs:
    """Which of two classes an image is of."""

    def __init__(self, classes: int = 2, size: int = 32):
        self.classes, self.size = classes, size

    def build_model(self):
        features = nn.Sequential(nn.Conv2d(3, 8, 4, stride=4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        return nn.Sequential(features, nn.Linear(8, self.classes))

    def open_data(self, place):
        return image_data(place.data_set((3, None, None), self.classes), ResizedCrop(self.size))

    def loss(self, outputs, targets):
        return nn.functional.cross_entropy(outputs, targets)

    def metrics(self, outputs, targets):
        return {"accuracy": (outputs.argmax(1) == targets).to(torch.float32).mean()}
