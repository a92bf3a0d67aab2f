'''What a task is: a class with a model, data, a loss and, if it likes, metrics.

A user's own task is any class that fits, named `module:attribute`, in a file of the project. Its constructor's keyword
arguments are its options: `--set width=128`. A whole one:

    import torch
    from torch import nn
    from torch.utils.data import TensorDataset


    class Parity:
        """Is the number of ones even? `trainjob submit --task parity:Parity --set width=128`."""

        def __init__(self, bits: int = 8, width: int = 64):
            self.bits, self.width = bits, width

        def build_model(self):
            return nn.Sequential(nn.Linear(self.bits, self.width), nn.ReLU(), nn.Linear(self.width, 2))

        def open_data(self, place):
            numbers = torch.arange(2**self.bits)
            inputs = (numbers[:, None] >> torch.arange(self.bits) & 1).float()
            everything = TensorDataset(inputs, inputs.sum(1).long() % 2)
            return everything, everything  # training and held-out samples

        def loss(self, outputs, targets):
            return nn.functional.cross_entropy(outputs, targets)

        def metrics(self, outputs, targets):
            return {"accuracy": (outputs.argmax(1) == targets).float().mean()}
'''

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable, Dict, NamedTuple, Optional, Protocol, Tuple, Union

import torch

from trainjob.contract.errors import UserError
from trainjob.contract.manifest import MADE_UP, find
from trainjob.data import synthetic
from trainjob.data.checking import check_at_start
from trainjob.data.shards import DataSet, open_by_name
from trainjob.data.sizes import Sizes

# Channels, height and width of an image; None: any.
Shape = Tuple[Optional[int], ...]


class TaskData(NamedTuple):
    """What a task trains on. `train` and `held_out`: a source of ours, or a map-style Dataset."""

    train: Any
    held_out: Any = None  # None: nothing is evaluated
    # Applied to the inputs of each micro batch on the device: (n, …) → (n, …) of the given floating type.
    normalise: Optional[Callable[[Any, torch.dtype], Any]] = None
    identity: str = ""  # equal on instances that see the same data: a manifest's checksum


class Task(Protocol):
    """Model, data and loss. Every method may raise UserError for what the user can put right.

    A task whose model can be split over n IPUs says where in its attribute `split_points`: names of the n − 1 modules
    that begin the second IPU and those after it.
    """

    def build_model(self) -> torch.nn.Module:
        """Return the model with its first weights; torch's generator has been seeded."""

    def open_data(self, place: DataPlace) -> Union[TaskData, Tuple[Any, Any]]:
        """Return the data; (training samples, held-out samples) is enough, and held-out samples may be None."""

    def loss(self, outputs: Any, targets: Any) -> Any:
        """Return the loss of one micro batch as a tensor of no dimensions, the mean over its samples."""

    def metrics(self, outputs: Any, targets: Any) -> Dict[str, Any]:
        """Return means over the micro batch by name; "accuracy" is shown, the others are recorded. May be left out."""


class DataPlace:
    """Where a task finds its data."""

    def __init__(
        self,
        name: Optional[str],
        folder: Optional[Path],
        seed: int,
        reads_every_byte: bool,
        samples: Optional[int] = None,
    ) -> None:
        self.name = name  # as the job's `data` says
        self.folder = folder  # TRAINJOB_DATA_DIR
        self.seed = seed
        self.samples = samples  # as the plan counted; None where it did not know
        self._reads_every_byte = reads_every_byte

    def data_set(self, shape: Optional[Shape] = None, classes: Optional[int] = None) -> DataSet:
        """Return the prepared data set that the job names, checked; its images must have `shape`.

        A size that is None may be any. `synthetic` is made up to fit where none is prepared. Raises UserError where
        it is not prepared, damaged, or does not fit.
        """
        if self.name is None:
            raise UserError("this task needs a prepared data set and the job names none: give --data NAME")
        if self.name == MADE_UP and find(self.name, self.folder) is None:
            return self._made_up(shape, classes)
        data_set = open_by_name(self.name, self.folder)
        # One rank of each host reads every byte, so that hosts with disks of their own are each looked at.
        if self._reads_every_byte:
            check_at_start(data_set.folder, data_set.manifest)
        _check_fit(data_set, shape, classes)
        return data_set

    def _made_up(self, shape: Optional[Shape], classes: Optional[int]) -> DataSet:
        usual = Sizes()
        channels, height, width = [size or as_usual for size, as_usual in zip(shape or usual.shape, usual.shape)]
        sizes = usual._replace(shape=(channels, height, width), classes=min(classes or usual.classes, usual.classes))
        if self.samples is not None:
            sizes = sizes._replace(samples=self.samples, held_out=max(1, self.samples // 4))
        return synthetic.MadeUp(sizes)


def _check_fit(data_set: DataSet, shape: Optional[Shape], classes: Optional[int]) -> None:
    manifest = data_set.manifest
    if shape is not None and any(size not in (None, found) for size, found in zip(shape, manifest.shape)):
        raise UserError(
            "data set %s has images of shape %s (channels, height, width) and the task takes %s: take another data set "
            "or another task" % (manifest.name, _sizes(manifest.shape), _sizes(shape))
        )
    if classes is not None and manifest.classes > classes:
        raise UserError(
            "data set %s has %d classes and the task tells %d apart: take another data set, or give the task more "
            "classes" % (manifest.name, manifest.classes, classes)
        )


def _sizes(shape: Shape) -> str:
    return "(%s)" % ", ".join("any" if size is None else str(size) for size in shape)
