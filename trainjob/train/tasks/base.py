'''The Protocol of tasks: a class with a model, data, a loss and, optionally, metrics.

A user's own task is any class that fits, named `module:attribute`, in a file of the project. The keyword arguments of
its constructor are its options: `--set width=128`. A complete example:

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
from trainjob.data import synthetic
from trainjob.data.checking import check_at_start
from trainjob.data.manifest import ENCODED, IMAGES, MADE_UP, PYTHON_DOCS, TOKENS, find
from trainjob.data.shards import DataSet, Shards, TokenSet, open_by_name
from trainjob.data.sizes import Sizes
from trainjob.data.tokens import PythonDocs
from trainjob.train.samples.nested import Nested
from trainjob.train.samples.sources import TokenSource

# Channels, height and width of an image; None: any.
Shape = Tuple[Optional[int], ...]


class TaskData(NamedTuple):
    """The data of a task. `train` and `held_out` are a source of ours or a Dataset."""

    train: Any
    held_out: Any = None  # None: no evaluation
    # Applied to the inputs of each micro batch on the device: (n, …) → (n, …) of the given floating type.
    normalise: Optional[Callable[[Nested, torch.dtype], Nested]] = None
    identity: str = ""  # the same on instances with the same data, such as a manifest's checksum


class Task(Protocol):
    """Model, data and loss. Every method may raise UserError for what the user can correct.

    If the model can be split over n IPUs, the attribute `split_points` names the n − 1 modules at which the second and
    later IPUs start.
    """

    def build_model(self) -> torch.nn.Module:
        """Return the model with its initial weights; torch's generator has been seeded."""

    def open_data(self, place: DataPlace) -> Union[TaskData, Tuple[Any, Any]]:
        """Return the data: TaskData, or (training samples, held-out samples), of which the latter may be None."""

    def loss(self, outputs: Nested, targets: Nested) -> torch.Tensor:
        """Return the loss of one micro batch, the mean over its samples, as a tensor of no dimensions."""

    def metrics(self, outputs: Nested, targets: Nested) -> Dict[str, torch.Tensor]:
        """Return means over the micro batch by name. Optional; "accuracy" is shown, others are only recorded."""


class DataPlace:
    """The data that a job names, and what a task needs to know in order to open it."""

    def __init__(
        self,
        name: Optional[str],
        folder: Optional[Path],
        seed: int,
        reads_every_byte: bool,
        samples: Optional[int] = None,
    ) -> None:
        self._name = name
        self.is_used = False  # whether the task has read the name of the data set
        self.folder = folder  # TRAINJOB_DATA_DIR
        self.seed = seed
        self.samples = samples  # of the plan; None if unknown there
        self._reads_every_byte = reads_every_byte

    @property
    def name(self) -> Optional[str]:
        """The data set that the job names; None if it names none."""
        self.is_used = True
        return self._name

    def data_set(self, shape: Optional[Shape] = None, classes: Optional[int] = None) -> DataSet:
        """Return the prepared data set that the job names, after checking it; its images must have `shape`.

        Sizes that are None may have any value. `synthetic` is generated to fit if it is not prepared. Raises UserError
        if the data set is not prepared, is damaged or does not fit.
        """
        if self.name is None:
            raise UserError("this task needs a prepared data set and the job names none", "give --data NAME")
        if self.name == MADE_UP and find(self.name, self.folder) is None:
            return self._made_up(shape, classes)
        data_set = self._opened(self.name)
        manifest = data_set.require(IMAGES, ENCODED).manifest
        if shape is not None and any(size not in (None, actual) for size, actual in zip(shape, manifest.shape)):
            raise UserError(
                "data set %s has images of shape %s (channels, height, width) and the task takes %s"
                % (manifest.name, _sizes(manifest.shape), _sizes(shape)),
                "use another data set or another task",
            )
        if classes is not None and manifest.classes > classes:
            raise UserError(
                "data set %s has %d classes and the task distinguishes %d" % (manifest.name, manifest.classes, classes),
                "use another data set, or give the task more classes",
            )
        return data_set

    def token_data(self, context: int, vocabulary: int) -> TaskData:
        """Return the tokens that the job names, in samples of `context`: inputs and targets (n, context) int64.

        `python-docs` is read from this Python if it is not prepared. Raises UserError as `data_set` does, and if a
        token is outside `vocabulary` or there are too few for one sample.
        """
        if self.name is None:
            raise UserError("this task needs a data set of tokens and the job names none", "give --data NAME")
        if self.name == PYTHON_DOCS and find(self.name, self.folder) is None:
            data_set: TokenSet = PythonDocs()
        else:
            data_set = self._opened(self.name).require(TOKENS)
        manifest = data_set.manifest
        if manifest.classes > vocabulary:
            raise UserError(
                "data set %s has tokens up to %d and the task's vocabulary is %d"
                % (manifest.name, manifest.maximum, vocabulary),
                "use another data set, or give the task a vocabulary of %d" % manifest.classes,
            )
        train = TokenSource(data_set.tokens("train"), context)
        if not len(train):
            raise UserError(
                "data set %s has %d training tokens and a sample takes %d"
                % (manifest.name, manifest.splits["train"].samples, context + 1),
                "use a shorter context",
            )
        held_out = TokenSource(data_set.tokens("test"), context) if "test" in manifest.splits else None
        return TaskData(train, held_out if held_out else None, identity=data_set.identity())

    def _opened(self, name: str) -> Shards:
        data_set = open_by_name(name, self.folder)
        # One rank of each host reads every byte, so that every host's own disk is checked.
        if self._reads_every_byte:
            check_at_start(data_set.folder, data_set.manifest)
        return data_set

    def _made_up(self, shape: Optional[Shape], classes: Optional[int]) -> DataSet:
        default = Sizes()
        channels, height, width = [size or usual for size, usual in zip(shape or default.shape, default.shape)]
        fewest = min(classes or default.classes, default.classes)
        sizes = default._replace(shape=(channels, height, width), classes=fewest)
        if self.samples is not None:
            sizes = sizes._replace(samples=self.samples, held_out=max(1, self.samples // 4))
        return synthetic.MadeUp(sizes)


def _sizes(shape: Shape) -> str:
    return "(%s)" % ", ".join("any" if size is None else str(size) for size in shape)
