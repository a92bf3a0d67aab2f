"""The Protocol of engines: they take blocks of updates and return the loss and the metrics of each."""

from __future__ import annotations

from typing import Callable, Dict, Generator, List, NamedTuple, Optional, Protocol, Sequence, Tuple, Union

import torch

from trainjob.records.job import TrainSettings
from trainjob.train.recording.state import State
from trainjob.train.recording.trace import TraceWriter
from trainjob.train.samples.arithmetic import Arithmetic
from trainjob.train.samples.batches import Block
from trainjob.train.samples.nested import Nested
from trainjob.train.samples.sources import Source
from trainjob.train.stopping import Flags
from trainjob.train.tasks.base import Task
from trainjob.train.world import World


class EngineParts(NamedTuple):
    """Everything an engine is built from."""

    task: Task
    model: torch.nn.Module
    normalise: Optional[Callable[[Nested, torch.dtype], Nested]]
    settings: TrainSettings
    counts: Arithmetic
    world: World
    learning_rate: Callable[[int], float]  # of an update
    trial: Tuple[Nested, Nested]  # inputs and targets of one micro batch, the same on all ranks in all attempts
    trace: Optional[TraceWriter] = None  # records every update, if the run is to be compared


class BlockOutcome(NamedTuple):
    """The result of a block, reduced over all instances."""

    loss: List[float]  # of each update: the mean over the global batch
    metrics: List[Dict[str, float]]  # of each update
    flags: Flags  # set if any rank set them


# Returns the outcome of a trained block, waiting for it if it is still being reduced over the instances.
Pending = Callable[[], BlockOutcome]


class Engine(Protocol):
    """Holds the model and trains it."""

    communication_seconds: float  # since the start: spent waiting for other instances and doing nothing else
    evaluates_together: bool  # whether all instances must call `evaluate` the same number of times
    shards: bool  # whether each instance holds a part of the state, and writes it

    def blocks(self, source: Source, start: int, end: int) -> Generator[Block, None, None]:
        """Yield this instance's blocks for updates `start` to `end`, in order; closing it ends what prepares them."""

    @property
    def evaluation_batch(self) -> int:
        """The most samples that `evaluate` takes at once."""

    def train(self, block: Block, flags: Flags) -> Pending:
        """Make the updates of `block`. Returns without waiting for the outcome if that can follow later."""

    def evaluate(self, inputs: Nested, targets: Nested) -> List[float]:
        """Return the means of the loss and of each metric over some held-out samples; changes no weight."""

    @property
    def metric_names(self) -> List[str]:
        """Names of the values that `evaluate` returns after the loss."""

    def before_evaluation(self) -> None:
        """Make buffers, such as running statistics, equal on all instances."""

    def after_evaluation(self) -> None:
        """Undo what `before_evaluation` did for the evaluation alone."""

    def state(self) -> State:
        """Return everything that a checkpoint holds."""

    def load(self, state: State) -> None:
        """Continue training from `state`. Raises UserError if it belongs to another model."""

    def is_finite(self) -> bool:
        """Return whether all weights are finite: no other state is worth keeping."""


# A number, or a tensor of no dimensions, which a GPU may still be computing.
Number = Union[float, torch.Tensor]


def as_vector(values: Sequence[Number], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Return numbers as one vector."""
    if device.type == "cpu":
        return torch.tensor([float(value) for value in values], dtype=dtype)
    return torch.stack([torch.as_tensor(value, dtype=dtype, device=device) for value in values])
