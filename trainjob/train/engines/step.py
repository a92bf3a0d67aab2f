"""One weight update with torch, for every engine but the IPU's: micro batches, gradients, step."""

from __future__ import annotations

import contextlib
from typing import Any, Callable, ContextManager, Generator, Iterator, List, Optional, Tuple

import torch

from trainjob.contract import clock
from trainjob.train.engines import precision
from trainjob.train.engines.average import Average
from trainjob.train.engines.base import BlockOutcome, EngineParts, Number, Pending, as_vector
from trainjob.train.engines.compiling import channels_last, compile_modules, store_channels_last
from trainjob.train.engines.trial import Tried, is_repeatable, reads_buffers, refuse_unused, try_out
from trainjob.train.engines.units import recompute, units_of
from trainjob.train.optimizers import build as build_optimizer
from trainjob.train.optimizers import parameter_groups
from trainjob.train.recording.state import State, load_model, load_optimizer, model_tensors, optimizer_tensors
from trainjob.train.recording.trace import TraceWriter
from trainjob.train.samples import nested
from trainjob.train.samples.batches import Block
from trainjob.train.samples.batches import blocks as gathered
from trainjob.train.samples.draws import micro_batch_seed
from trainjob.train.samples.nested import Nested
from trainjob.train.samples.sources import Source
from trainjob.train.stopping import Flags
from trainjob.train.world import Later

# Without a backward pass no activations are kept, so eight micro batches fit where one does.
_EVALUATED_AT_ONCE = 8


class TorchEngine:
    """Training in one process. Engines for several processes override the hooks below."""

    evaluates_together = False
    shards = False
    averages = False  # whether reducing divides by the number of instances, which a sum must undo

    def __init__(self, parts: EngineParts) -> None:
        self.parts = parts
        self.settings = parts.settings
        self.world = parts.world
        self.trace = parts.trace
        self.device = parts.world.device
        self.dtype = precision.floating_type(parts.settings.precision)
        self.model = self.place(parts.model)
        self.numerics = self.build_numerics()
        self.communication_seconds = 0.0
        self.metric_names: List[str] = []
        # On the CPU the generator itself, because torch.manual_seed also visits every other kind of device.
        on_gpu = self.device.type == "cuda"
        self._seed_device: Callable[[int], object] = (
            torch.manual_seed if on_gpu else torch.default_generator.manual_seed
        )
        self._sums: List[Number] = []
        self._flags = Flags()
        self._on_cpu = self.device.type == "cpu"
        self.model.train()
        tried = self._try_out()
        if parts.settings.compile:
            compile_modules(self.compiled_modules(), self.world)
        self.optimizer = self.build_optimizer(tried.sparse)
        self._weights = list(self.model.parameters())
        decay = parts.settings.average_decay
        self.average = None if decay is None else Average(self.model, decay)
        reads_gradients = parts.settings.clip_norm is not None or parts.trace is not None
        self._before_step: Optional[Callable[[], None]] = self._clip_and_trace if reads_gradients else None
        self._loss_scale = self.loss_scale()
        self._first_micro_batch = parts.counts.first_micro_batch(parts.world.rank)

    # -- hooks ---------------------------------------------------------------------------------

    def place(self, model: torch.nn.Module) -> torch.nn.Module:
        """Return the model as it trains, on this instance's device."""
        if self.settings.recompute:
            recompute(model, units_of(self.parts.task, model))
        model = model.to(self.device, self.dtype)
        if self.settings.memory_format == "channels-last":
            store_channels_last(model)
        return model

    def compiled_modules(self) -> List[torch.nn.Module]:
        """Return the modules that are compiled, each by itself."""
        return [self.model]

    def build_numerics(self) -> precision.Numerics:
        """Return the arithmetic of the precision that the settings name."""
        return precision.build(self.settings.precision, self.model, self.device)

    def loss_scale(self) -> float:
        """Return the factor for each micro batch's loss, so that gradients add up to the requested reduction."""
        if self.settings.reduction == "mean":
            return 1.0 / self.settings.accumulation
        return float(self.world.size) if self.averages else 1.0

    def forward(self, inputs: Nested) -> Nested:
        """Return the model's outputs for one micro batch."""
        return self.model(inputs)

    def holding_back(self) -> ContextManager[Any]:
        """Return the context for all micro batches of an update but the last."""
        return contextlib.nullcontext()

    def backward(self, loss: torch.Tensor, last: bool) -> None:  # noqa: ARG002 - for engines that reduce meanwhile
        """Add the gradients of one micro batch; `last` says that it is the last one of its update."""
        loss.backward()

    def build_optimizer(self, sparse: bool) -> Any:
        """Return the optimizer that the settings name; `sparse` says that some gradients are."""
        return build_optimizer(parameter_groups(self.model, self.parts.task), self.settings, sparse)

    def reduce_gradients(self) -> None:
        """Reduce the gradients over all instances, unless the backward passes have."""

    def step(self) -> None:
        """Update the weights with their gradients."""
        self.numerics.step(self.optimizer, self._before_step)

    def after_step(self, update: int) -> None:
        """Do what follows the step of `update`, counted from 0."""

    def share(self, sums: List[Number], flags: Flags) -> Pending:
        """Start to reduce the outcome of an update, given the `sums` over this instance's micro batches."""
        if self.world.size == 1:
            count = self.parts.counts.micro_batches
            return lambda: self._outcome([float(value) / count for value in sums], flags)
        vector = as_vector([*sums, float(flags.stop), float(flags.stale)], torch.float64, self.device)
        return self.outcome_of(self.world.sum_later(vector), self.parts.counts.micro_batches)

    def outcome_of(self, reduced: Later, parts: int) -> Pending:
        """Return the outcome whose sums, ÷ `parts` the means over the global batch, are still being `reduced`."""

        def read() -> BlockOutcome:
            *sums, stop, stale = reduced.read()
            self.communication_seconds += reduced.waited
            return self._outcome([value / parts for value in sums], Flags(stop > 0, stale > 0))

        return read

    def _outcome(self, means: List[float], flags: Flags) -> BlockOutcome:
        return BlockOutcome([means[0]], [dict(zip(self.metric_names, means[1:]))], flags)

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """Count the time of collectives with nothing to do meanwhile, and let the watch know that this rank waits."""
        start = clock.monotonic()
        self.world.waits = True
        yield
        self.world.waits = False
        self.communication_seconds += clock.monotonic() - start

    # -- training ------------------------------------------------------------------------------

    def blocks(self, source: Source, start: int, end: int) -> Generator[Block, None, None]:
        """Return this instance's blocks for updates `start` to `end`."""
        pin = self.device.type == "cuda"
        return gathered(source, self.parts.counts, self.world.rank, start, end, self.settings.workers, pin)

    def train(self, block: Block, flags: Flags) -> Pending:
        """Make the one update of `block`."""
        update = block.first_update
        rate = self.parts.learning_rate(update)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        for weight in self._weights:  # like the optimizer's zero_grad, in a tenth of the time
            weight.grad = None
        self._sums, self._flags = [], flags
        with self.numerics.during_update():
            self._micro_batches(block)
        self.reduce_gradients()
        self.step()
        self.after_step(update)
        if self.average is not None:
            self.average.follow(update)
        if self.trace is not None:
            self.trace.weights(update + 1, self.model)
        return self.share(self._sums, flags)

    def _clip_and_trace(self) -> None:
        if self.settings.clip_norm is not None:
            torch.nn.utils.clip_grad_norm_(self._weights, self.settings.clip_norm)
        if self.trace is not None:
            self.trace.gradients(self.model)

    def _micro_batches(self, block: Block) -> None:
        """Add up the gradients, and in `_sums` the loss and the metrics, over this instance's micro batches."""
        size, count = self.settings.micro_batch, self.settings.accumulation
        inputs, targets = self._to_device(block.inputs), self._to_device(block.targets)
        for number in range(count):
            seed = micro_batch_seed(self.settings.seed, block.first_update, self._first_micro_batch + number)
            self._seed_device(seed)
            rows = inputs, targets
            if count > 1:
                rows = nested.rows(rows, number * size, (number + 1) * size)
            if self.trace is not None:
                self.trace.micro_batch(self._first_micro_batch + number, *rows)
            last = number == count - 1
            with contextlib.nullcontext() if last else self.holding_back():
                self._forward_and_backward(*rows, last)

    def _forward_and_backward(self, inputs: Nested, targets: Nested, last: bool) -> None:
        with self.numerics.during_forward():
            outputs = self.forward(self._normalised(inputs))
            loss = self.parts.task.loss(outputs, targets)
        values = self._values(loss, outputs, targets)
        self._sums = [total + value for total, value in zip(self._sums, values)] if self._sums else values
        loss = self.numerics.scaled(loss)
        self.backward(loss if self._loss_scale == 1.0 else loss * self._loss_scale, last)

    def _values(self, loss: torch.Tensor, outputs: Nested, targets: Nested) -> List[Number]:
        """Return loss and metrics of a micro batch: as numbers, or on a GPU as tensors, so as not to wait for it."""
        shown = loss.detach()
        if self.settings.loss_is_summed:
            shown = shown / nested.count(targets)
        values: List[Number] = [shown]
        if self.metric_names:
            with torch.no_grad():
                metrics = self.parts.task.metrics(outputs, targets)
            values += [metrics[name] for name in self.metric_names]
        return [float(value) for value in values] if self._on_cpu else values

    def _to_device(self, value: Nested) -> Nested:
        if self._on_cpu:
            return value
        return nested.convert(lambda tensor: tensor.to(self.device, non_blocking=True), value)

    def _normalised(self, inputs: Nested) -> Nested:
        if self.parts.normalise is not None:
            inputs = self.parts.normalise(inputs, self.dtype)
        elif self.dtype is not torch.float32:
            dtype = self.dtype
            inputs = nested.convert(lambda tensor: tensor.to(dtype) if tensor.is_floating_point() else tensor, inputs)
        if self.settings.memory_format == "channels-last":
            inputs = nested.convert(channels_last, inputs)
        return self.numerics.inputs(inputs)

    # -- evaluation ----------------------------------------------------------------------------

    @property
    def evaluation_batch(self) -> int:
        """Return how many samples are evaluated at once."""
        return self.settings.micro_batch * _EVALUATED_AT_ONCE

    def evaluate(self, inputs: Nested, targets: Nested) -> List[float]:
        """Return the means of the loss and of each metric over some held-out samples."""
        self.model.eval()
        try:
            with torch.no_grad(), self.numerics.during_update(), self.numerics.during_forward():
                targets = self._to_device(targets)
                outputs = self.model(self._normalised(self._to_device(inputs)))
                values = self._values(self.parts.task.loss(outputs, targets), outputs, targets)
                return [float(value) for value in values]
        finally:
            self.model.train()

    def before_evaluation(self) -> None:
        """Give every instance the buffers of the first, because each has seen different micro batches."""
        if self.average is not None:
            self.average.take_place()
        self.world.synchronise(list(self.model.buffers()))

    def after_evaluation(self) -> None:
        """Put the weights back that training continues with."""
        if self.average is not None:
            self.average.give_place()

    # -- state ---------------------------------------------------------------------------------

    def state(self) -> State:
        """Return the model's and the optimizer's tensors, by name."""
        optimizer = optimizer_tensors(self.optimizer, self.model)
        average = {} if self.average is None else self.average.tensors()
        return State(model_tensors(self.model), optimizer, self.numerics.state(), average)

    def load(self, state: State) -> None:
        """Continue training from `state`."""
        load_model(self.model, state.model)
        load_optimizer(self.optimizer, self.model, state.optimizer)
        self.numerics.load(state.precision)
        if self.average is not None:
            self.average.load(state.average)

    def is_finite(self) -> bool:
        """Return whether all weights are finite."""
        with torch.no_grad():
            # A sum is not finite if an element is not; this takes one pass and no mask.
            return all(bool(torch.isfinite(weight.sum())) for weight in self.model.parameters())

    # -- before the first update ---------------------------------------------------------------

    def trial_batch(self) -> Tuple[Nested, Nested]:
        """Return inputs and targets of the trial micro batch as the model takes them, after seeding the generator."""
        self._seed_device(micro_batch_seed(self.settings.seed, 0, 0))
        inputs, targets = self._to_device(self.parts.trial)
        return self._normalised(inputs), targets

    def _try_out(self) -> Tried:
        tried = try_out(self.parts.task, self.model, *self.trial_batch())
        self.metric_names = tried.metric_names
        if self.trace is not None:
            self._note_model(self.trace)
        if tried.unused and not self.settings.allow_unused_parameters:
            raise refuse_unused(tried.unused)
        return tried

    def _note_model(self, trace: TraceWriter) -> None:
        def inputs() -> Nested:
            return self.trial_batch()[0]

        trace.model(self.model, is_repeatable(self.model, inputs), reads_buffers(self.model, inputs))
