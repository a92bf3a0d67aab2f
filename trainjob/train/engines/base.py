"""What an engine is: it consumes blocks of updates and gives the loss and the metrics of each."""

from __future__ import annotations

from typing import Any, Callable, Dict, Generator, List, NamedTuple, Optional, Protocol, Tuple

import torch

from trainjob.contract.job import TrainSettings
from trainjob.train.arithmetic import Arithmetic
from trainjob.train.batches import Block
from trainjob.train.tasks.base import Task
from trainjob.train.trace import Trace
from trainjob.train.world import World


class Parts(NamedTuple):
    """What an engine is built of."""

    task: Task
    model: torch.nn.Module
    normalise: Optional[Callable[[Any, torch.dtype], Any]]
    settings: TrainSettings
    counts: Arithmetic
    world: World
    learning_rate: Callable[[int], float]  # of an update
    trial: Tuple[Any, Any]  # inputs and targets of one micro batch, equal on every rank and in every attempt
    trace: Optional[Trace] = None  # told of every update, where a run is to be compared


class Flags(NamedTuple):
    """What this rank has to tell the others with its next block."""

    stop: bool = False
    stale: bool = False


class Outcome(NamedTuple):
    """What a block gave, agreed over all instances."""

    loss: List[float]  # of each update: the mean over the global batch
    metrics: List[Dict[str, float]]  # of each update
    flags: Flags  # set where any rank set them


class Pending(Protocol):
    """A block that was trained and whose outcome the instances are still agreeing on."""

    def read(self) -> Outcome:
        """Return the outcome, waiting for it where it is not there yet."""


class State(NamedTuple):
    """Everything that training changes. Tensors are the engine's own: copy before the next block."""

    model: Dict[str, Any]
    optimizer: Dict[str, Any]  # "parameter:what" → tensor
    precision: Dict[str, Any]  # the gradient scaler's, where there is one


class Engine(Protocol):
    """Holds the model and changes it."""

    communication_seconds: float  # since the start: waiting for other instances while nothing else was done
    evaluates_together: bool  # whether all instances must call `evaluate` equally often

    def blocks(self, source: Any, start: int, end: int) -> Generator[Block, None, None]:
        """Yield this instance's blocks for updates `start` to `end`, in order; closing it ends what makes them."""

    @property
    def evaluation_batch(self) -> int:
        """Samples that `evaluate` takes at once, at most."""

    def train(self, block: Block, flags: Flags) -> Pending:
        """Make the updates of `block`. Returns at once where the outcome can follow later."""

    def evaluate(self, inputs: Any, targets: Any) -> List[float]:
        """Return the loss and each metric of some held-out samples, means over them; no weight changes."""

    @property
    def metric_names(self) -> List[str]:
        """Names of what `evaluate` gives after the loss."""

    def before_evaluation(self) -> None:
        """Make what is no gradient (running statistics) equal on all instances."""

    def state(self) -> State:
        """Return all that a checkpoint holds."""

    def load(self, state: State) -> None:
        """Take up training from `state`. Raises UserError where it is not of this model."""

    def is_finite(self) -> bool:
        """Return whether no weight is infinite or not a number: only such a state is worth keeping."""
