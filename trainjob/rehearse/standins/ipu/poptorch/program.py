"""A compiled model: the device's own copy of weights and buffers, and one call of it over all micro batches."""

from __future__ import annotations

import contextlib
import copy
from typing import Any, Dict, Iterator, List, Tuple

import torch
from torch import nn

from poptorch import values
from poptorch.arithmetic import as_input, as_output, computing_type, device_types, rounded
from poptorch.blocks import traced
from poptorch.enums import OutputMode
from poptorch.layout import Results, Shape, micro_batch
from poptorch.losses import marked_losses, the_loss

Call = Tuple[Tuple[Any, ...], Dict[str, Any]]


class Program:
    """The model on the device. Weights are equal on all replicas: there is one set. Buffers are each replica's own."""

    trains = False

    def __init__(self, model: nn.Module, options: Any, mode: OutputMode) -> None:
        self.options = options
        self.host = model
        self.device = copy.deepcopy(model).to(computing_type())
        self.shape = _shape(options)
        self._mode = mode
        floating = [weight for weight in model.parameters() if weight.is_floating_point()]
        self.is_half = any(weight.dtype is torch.float16 for weight in floating)
        pairs = list(zip(model.parameters(), self.device.parameters()))
        self.device_weight = {id(host): device for host, device in pairs}
        self.half = {id(device): host.dtype is torch.float16 for host, device in pairs}
        self._owners = [(owner, name) for owner in self.device.modules() for name in owner._buffers]
        self._buffers = [self._copies() for _ in range(self.shape.replicas)]
        self._random_state = _first_random_state(options)

    def _copies(self) -> List[Any]:
        buffers: List[Any] = [owner._buffers[name] for owner, name in self._owners]
        return [None if buffer is None else buffer.clone() for buffer in buffers]

    # -- one call ------------------------------------------------------------------------------

    def run(self, call: Call) -> Any:
        """Return what the output mode asks of the results of all micro batches. Raises Error."""
        inputs = values.convert(as_input, call)
        results = Results(self.shape, self._mode, self.options.output_return_period)
        outputs: Any = None
        with self._surroundings():
            for iteration in range(self.shape.iterations):
                for replica in range(self.shape.replicas):
                    outputs = self._replica(inputs, iteration, replica, results)
                self.end_of_iteration()
        return values.like(outputs, results.joined())

    def _replica(self, inputs: Any, iteration: int, replica: int, results: Results) -> Any:
        outputs: Any = None
        with self._buffers_of(replica):
            for number in range(self.shape.accumulation):
                outputs, marked = self._forward(self._rows(inputs, iteration, replica, number))
                self.after_forward(outputs, marked)
                tensors = [as_output(tensor, self.is_half) for tensor in values.flat(outputs)]
                results.add(iteration, replica, number, tensors)
        self.after_replica()
        return outputs

    def after_forward(self, outputs: Any, marked: List[Any]) -> None:
        """Do what follows the forward pass of a micro batch."""

    def after_replica(self) -> None:
        """Do what follows the micro batches of one replica."""

    def end_of_iteration(self) -> None:
        """Do what follows the micro batches of all replicas."""

    def _rows(self, inputs: Any, iteration: int, replica: int, number: int) -> Any:
        place = self.shape.place_of(iteration, self.options.input_of(replica), number)
        return values.convert(lambda tensor: micro_batch(tensor, place, self.shape.of_input), inputs)

    def _forward(self, call: Call) -> Tuple[Any, List[Any]]:
        with marked_losses() as marked:
            return self.device(*call[0], **call[1]), marked

    # -- compiling -----------------------------------------------------------------------------

    def trace(self, call: Call) -> int:
        """Run one micro batch as compiling does, and return the number of the last IPU that it went through.

        Raises Error for inputs that can't be divided into micro batches, and for a training without a loss.
        """
        first = self._rows(values.convert(as_input, call), 0, 0, 0)
        stages = traced(self.device, self.options.execution_strategy.auto_stage)
        before = self._copies()
        with self._surroundings(keep=True), stages as placement:
            outputs, marked = self._forward(first)
        self._put(before)
        if self.trains:
            the_loss(marked, values.flat(outputs))
        return int(placement.highest)

    # -- what surrounds a forward pass ---------------------------------------------------------

    @contextlib.contextmanager
    def _buffers_of(self, replica: int) -> Iterator[None]:
        # By name and not in place: a layer may put another tensor where its buffer was.
        self._put(self._buffers[replica])
        yield
        self._buffers[replica] = [owner._buffers[name] for owner, name in self._owners]

    def _put(self, buffers: List[Any]) -> None:
        for (owner, name), value in zip(self._owners, buffers):
            owner._buffers[name] = value

    @contextlib.contextmanager
    def _surroundings(self, keep: bool = False) -> Iterator[None]:
        """Draw from the device's generator, and leave the host's as it was; `keep`: and the device's."""
        host = torch.get_rng_state()
        torch.set_rng_state(self._random_state)
        try:
            with device_types(), torch.set_grad_enabled(self.trains):
                yield
        finally:
            if not keep:
                self._random_state = torch.get_rng_state()
            torch.set_rng_state(host)

    # -- weights between host and device -------------------------------------------------------

    def weights_to_host(self) -> None:
        """Give the host's model the device's weights, and the buffers of the first replica."""
        with torch.no_grad():
            for host, device in zip(self.host.parameters(), self.device.parameters()):
                host.copy_(device)
            self._put(self._buffers[0])
            for mine, theirs in zip(self.host.buffers(), self.device.buffers()):
                mine.copy_(theirs)

    def weights_to_device(self) -> None:
        """Give the device's model the host's weights, and every replica its buffers."""
        with torch.no_grad():
            for host, device in zip(self.host.parameters(), self.device.parameters()):
                device.copy_(rounded(host) if self.half[id(device)] else host)
            for mine, theirs in zip(self.host.buffers(), self.device.buffers()):
                theirs.copy_(mine)
            self._buffers = [self._copies() for _ in range(self.shape.replicas)]


def _shape(options: Any) -> Shape:
    accumulation = options.Training.gradient_accumulation
    return Shape(options.device_iterations, options.replication_factor, accumulation, options.input_replicas)


def _first_random_state(options: Any) -> Any:
    generator = torch.Generator()
    # Instances draw different numbers, as their replicas do.
    seed = torch.initial_seed() if options.random_seed is None else options.random_seed
    generator.manual_seed((seed + 7919 * options.Distributed.processId) % (1 << 63))
    return generator.get_state()
