"""A compiled model: the device's own copy of weights and buffers, and one call of it over all micro batches.

The user's own modules run, with the device's weights in the place of theirs: what reaches a weight through a closure
finds the device's, too.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import torch
from torch import nn

from poptorch import ops, values
from poptorch.arguments import Call
from poptorch.arithmetic import (
    Half,
    as_half,
    as_input,
    as_output,
    computing_type,
    device_types,
    held_as_half,
    refuse_not_finite,
    rounded,
    to_half,
)
from poptorch.blocks import traced
from poptorch.enums import OutputMode
from poptorch.errors import Error
from poptorch.grouping import GroupedWeight, held_by
from poptorch.layout import Results, Shape, micro_batch
from poptorch.losses import marked_losses, the_loss
from poptorch.overlap import OverlapMarks

if TYPE_CHECKING:
    from poptorch.options import Options


class Program:
    """The model on the device. Weights are equal on all replicas: there is one set. Buffers are each replica's own."""

    trains = False

    def __init__(self, model: nn.Module, options: Options, mode: OutputMode, training: Dict[nn.Module, bool]) -> None:
        self.options, self.host, self.shape = options, model, _shape(options)
        self._mode, self._training = mode, training
        self.weights: List[Any] = list(model.parameters())
        self.half = {id(weight): weight.dtype is torch.float16 for weight in self.weights}
        self._device = [weight.detach().to(computing_type()).clone() for weight in self.weights]
        self._gradients: List[Any] = [None for _ in self.weights]
        self._places = [
            (owner, name, weight)
            for owner in model.modules()
            for name, weight in owner._parameters.items()
            if weight is not None
        ]
        self._norms = [module for module in model.modules() if isinstance(module, nn.modules.batchnorm._NormBase)]
        self._owners = [(owner, name) for owner in model.modules() for name in owner._buffers]
        self._buffers = [self._copies() for _ in range(self.shape.replicas)]
        self._constants: Optional[_Constants] = None  # once traced
        self._watched: Dict[str, List[Any]] = {}  # anchored tensors by name, one for each device iteration
        self._random_state = _first_random_state(options)
        self.grouped: List[GroupedWeight] = []

    def hold_apart(self, grouped: List[GroupedWeight]) -> None:
        """Have groups of replicas hold these weights apart. Raises Error if they can't be trained so."""
        self.grouped = grouped

    def _copies(self) -> List[Any]:
        buffers: List[Any] = [owner._buffers[name] for owner, name in self._owners]
        return [None if buffer is None else _of_device(buffer) for buffer in buffers]

    # -- one call ------------------------------------------------------------------------------

    def run(self, call: Call) -> Any:
        """Return what the output mode asks of the results of all micro batches. Raises Error."""
        inputs = values.convert(as_input, call)
        results = Results(self.shape, self._mode, self.options.output_return_period)
        outputs: Any = None
        self._watched = {anchor[0]: [] for anchor in self.options.anchored_tensors.values()}
        with self._surroundings():
            for iteration in range(self.shape.iterations):
                for replica in range(self.shape.replicas):
                    outputs = self._replica(inputs, iteration, replica, results)
                self.end_of_iteration()
                for name, seen in self._watched.items():
                    seen.append(self.tensor(name))
        return values.like(outputs, results.joined())

    def _replica(self, inputs: object, iteration: int, replica: int, results: Results) -> Any:
        outputs: Any = None
        with self._buffers_of(replica), held_by(replica, self.grouped):
            for number in range(self.shape.accumulation):
                outputs, marked = self._forward(self._rows(inputs, iteration, replica, number))
                refuse_not_finite(outputs, "the model's outputs")
                self.after_forward(outputs, marked)
                results.add(iteration, replica, number, [as_output(tensor) for tensor in values.flat(outputs)])
        self.after_replica()
        return outputs

    def after_forward(self, outputs: object, marked: List[torch.Tensor]) -> None:
        """Do what follows the forward pass of a micro batch."""

    def after_replica(self) -> None:
        """Do what follows the micro batches of one replica."""

    def end_of_iteration(self) -> None:
        """Do what follows the micro batches of all replicas."""

    def _rows(self, inputs: object, iteration: int, replica: int, number: int) -> Any:
        place = self.shape.place_of(iteration, self.options.input_of(replica), number)
        return values.convert(lambda tensor: micro_batch(tensor, place, self.shape.of_input), inputs)

    def _forward(self, call: Call) -> Tuple[Any, List[Any]]:
        if self._constants is not None:
            self._constants.put()
        with marked_losses(held_as_half) as marked, self._weights_in_half(), self._statistics():
            outputs = self.host(*call[0], **call[1])
        if self._constants is not None:
            self._constants.restore()
        return outputs, marked

    @contextlib.contextmanager
    def _weights_in_half(self) -> Iterator[None]:
        places = [place for place in self._places if self.half[id(place[2])]]
        for owner, name, weight in places:
            parameters: Any = owner._parameters
            parameters[name] = weight.as_subclass(Half)
        try:
            yield
        finally:
            for owner, name, weight in places:
                owner._parameters[name] = weight

    @contextlib.contextmanager
    def _statistics(self) -> Iterator[None]:
        """Have inference leave running statistics as they are, also of a model in training mode."""
        norms: List[Any] = [] if self.trains else self._norms
        before = [norm.momentum for norm in norms]
        for norm in norms:
            norm.momentum = 0.0
        try:
            yield
        finally:
            for norm, momentum in zip(norms, before):
                norm.momentum = momentum

    # -- compiling -----------------------------------------------------------------------------

    def trace(self, call: Call) -> int:
        """Run one micro batch as compiling does, and return the number of the last IPU that it went through.

        Raises Error for inputs that can't be divided into micro batches, and for a training without a loss.
        """
        first = self._rows(values.convert(as_input, call), 0, 0, 0)
        stages = traced(self.host, self.options.execution_strategy)
        self._constants = _Constants(self.host)
        with self._surroundings(keep=True), held_by(0, self.grouped), stages as placement:
            before = [owner._buffers[name] for owner, name in self._owners]
            copied = values.convert(torch.clone, first)
            with OverlapMarks(self.host.forward, copied) as marks:
                outputs, marked = self._forward(copied)
            marks.refuse(outputs, self.options)
            self._refuse_other_buffers(before)
            self._refuse_shared_buffers()
        if self.trains:
            the_loss(marked, values.flat(outputs))
        return int(placement.highest)

    def _refuse_other_buffers(self, before: Sequence[Optional[torch.Tensor]]) -> None:
        prefixes = {module: prefix for prefix, module in self.host.named_modules()}
        for (owner, name), buffer in zip(self._owners, before):
            full = "%s.%s" % (prefixes[owner], name) if prefixes[owner] else name
            if name not in owner._buffers:
                raise Error("Buffer %s is removed from the model when calling the forward method." % full)
            # torch's own layer puts another tensor in its place before torch 2.0.
            is_statistic = isinstance(owner, nn.modules.batchnorm._NormBase)
            if owner._buffers[name] is not buffer and not is_statistic:
                raise Error(
                    "Buffer %s is reassigned within the model when calling the forward method. This is not supported. "
                    "Consider using self.%s.copy_(src) to copy data from a source tensor, where src is the name of the "
                    "source tensor." % (full, name)
                )

    def _refuse_shared_buffers(self) -> None:
        if self.shape.replicas == 1 or not self.options.broadcast_buffers:
            return
        for (owner, name), before in zip(self._owners, self._buffers[0]):
            now = owner._buffers[name]
            is_statistic = isinstance(owner, nn.modules.batchnorm._NormBase)
            if before is not None and not is_statistic and (now is None or not torch.equal(now, before)):
                raise Error(
                    "PopTorch does not support broadcasting buffers. If your model is able to tolerate buffers "
                    "becoming out of sync between replicas, you can disable buffer broadcasting using "
                    "poptorch.Options.broadcastBuffers(False). It updates %s." % name
                )

    # -- what surrounds a forward pass ---------------------------------------------------------

    @contextlib.contextmanager
    def _buffers_of(self, replica: int) -> Iterator[None]:
        # By name and not in place: a layer may put another tensor where its buffer was.
        self._put(self._buffers[replica])
        yield
        self._buffers[replica] = [owner._buffers[name] for owner, name in self._owners]

    def _put(self, buffers: Sequence[Optional[torch.Tensor]]) -> None:
        for (owner, name), value in zip(self._owners, buffers):
            owner._buffers[name] = value

    @contextlib.contextmanager
    def _surroundings(self, keep: bool = False) -> Iterator[None]:
        """Have the modules hold the device's weights, draw from its generator, and give all back afterwards.

        `keep`: leave the device as it was.
        """
        random_state, hosts = torch.get_rng_state(), [weight.data for weight in self.weights]
        gradients = [weight.grad for weight in self.weights]
        buffers = [owner._buffers[name] for owner, name in self._owners]
        modes = [(module, module.training) for module in self.host.modules()]
        torch.set_rng_state(self._random_state)
        precision = self.options.Precision
        types = device_types(downcasts=self.options.downcasts(), raises=precision.floating_point_exceptions)
        try:
            for weight, device, gradient in zip(self.weights, self._device, self._gradients):
                weight.grad, weight.data = None, device
                weight.grad = gradient
            self._put([None if one is None else one.clone() for one in self._buffers[0]])
            for module, _mode in modes:
                module.training = self._training.get(module, module.training)
            with types, torch.set_grad_enabled(self.trains), ops.on_ipu():
                yield
        finally:
            self._gradients = [weight.grad for weight in self.weights]
            for weight, host, gradient in zip(self.weights, hosts, gradients):
                weight.grad, weight.data = None, host
                weight.grad = gradient
            self._put(buffers)
            for module, mode in modes:
                module.training = mode
            if not keep:
                self._random_state = torch.get_rng_state()
            torch.set_rng_state(random_state)

    # -- weights between host and device -------------------------------------------------------

    def weights_to_host(self) -> None:
        """Give the host's model the device's weights, and the buffers of the first replica."""
        with torch.no_grad():
            for host, device in zip(self.weights, self._device):
                host.copy_(to_half(device) if self.half[id(host)] else device)
            for (owner, name), theirs in zip(self._owners, self._buffers[0]):
                mine = owner._buffers[name]
                if theirs is not None and mine is not None:
                    mine.copy_(theirs)

    def buffers_to_device(self, names: List[str]) -> None:
        """Give every replica the host's buffers of these names."""
        wanted = {id(buffer) for name, buffer in self.host.named_buffers() if name in names}
        for place, (owner, name) in enumerate(self._owners):
            found = owner._buffers[name]
            if found is not None and id(found) in wanted:
                for buffers in self._buffers:
                    buffers[place] = _of_device(found)

    def tensor_names(self) -> List[str]:
        """Return the names of the tensors that can be looked at."""
        return [name for name, _ in self.host.named_parameters()]

    def anchored(self, name: str, mode: Optional[OutputMode], period: int) -> Any:
        """Return an anchored tensor of the last call, by its mode. An accumulated gradient is that of its update."""
        mode, seen = self._mode if mode in (None, OutputMode.Default) else mode, self._watched[name]
        if mode == OutputMode.Final:
            return seen[-1]
        if mode == OutputMode.Sum:
            return torch.stack(seen).sum(0)
        chosen = seen[period - 1 :: period] if mode == OutputMode.EveryN else seen
        return torch.cat([one.reshape(1) if one.dim() == 0 else one for one in chosen])

    def tensor(self, name: str) -> Any:
        """Return a tensor by name, as it is now. Raises Error."""
        weights = dict(zip((name for name, _ in self.host.named_parameters()), self._device))
        if name not in weights:
            raise Error(
                "tensor %s: a stand-in can anchor %s. What else a graph has, the compiler for IPUs alone knows"
                % (name, ", ".join(self.tensor_names()) or "nothing")
            )
        return weights[name].clone()

    def weights_to_device(self) -> None:
        """Give the device's model the host's weights, and every replica its buffers."""
        with torch.no_grad():
            for host, device in zip(self.weights, self._device):
                device.copy_(rounded(host) if self.half[id(host)] else host)
            self._buffers = [self._copies() for _ in range(self.shape.replicas)]


def _of_device(buffer: torch.Tensor) -> Any:
    if buffer.dtype is torch.float16:
        return as_half(buffer.detach()).clone()
    moved = buffer.detach().to(computing_type()) if buffer.is_floating_point() else buffer.detach()
    return moved.clone()


def _shape(options: Options) -> Shape:
    accumulation = options.Training.gradient_accumulation
    return Shape(options.device_iterations, options.replication_factor, accumulation, options.input_replicas)


def _first_random_state(options: Options) -> Any:
    generator = torch.Generator()
    # Instances draw different numbers, as their replicas do.
    seed = torch.initial_seed() if options.random_seed is None else options.random_seed
    generator.manual_seed((seed + 7919 * options.Distributed.processId) % (1 << 63))
    return generator.get_state()


class _Held(NamedTuple):
    module: nn.Module
    name: str
    values: Any
    version: int


class _Constants:
    """The attributes of a model's modules that are neither weights nor buffers, as they are before it runs.

    A graph is traced once: they are constants of it. What tracing does to a tensor in place stays on the host.
    """

    def __init__(self, model: nn.Module) -> None:
        self._attributes = {module: _plain_attributes(module) for module in model.modules()}
        self._held: List[_Held] = [
            _Held(module, name, value.detach().clone(), value._version)
            for module, attributes in self._attributes.items()
            for name, value in attributes.items()
            if isinstance(value, torch.Tensor)
        ]

    def put(self) -> None:
        """Give the modules their constants again where the host has changed them."""
        for module, name, before, version in self._held:
            if self._attributes[module][name]._version != version:
                module.__dict__[name] = before.clone()

    def restore(self) -> None:
        """Undo what forward has set, so that it never counts on from call to call."""
        for module, attributes in self._attributes.items():
            module.__dict__.update(attributes)


def _plain_attributes(module: nn.Module) -> Dict[str, Any]:
    """Return the attributes of a module that hold neither weights, buffers nor modules."""
    return {name: value for name, value in module.__dict__.items() if not name.startswith("_") and name != "training"}
