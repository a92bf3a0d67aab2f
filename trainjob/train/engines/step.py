"""One weight update with torch, as every engine but the IPU's makes it: micro batches, gradients, step."""

from __future__ import annotations

from typing import Any, Callable, ContextManager, Generator, List, Optional

import torch

from trainjob.train import nested, precision
from trainjob.train.batches import Block
from trainjob.train.batches import blocks as gathered
from trainjob.train.draws import micro_batch_seed
from trainjob.train.engines.base import Flags, Parts, Pending, State
from trainjob.train.engines.outcome import Known, Shared, as_vector
from trainjob.train.engines.state import load_model, load_optimizer, model_tensors, optimizer_tensors
from trainjob.train.engines.trial import Tried, is_repeatable, reads_buffers, refuse_unused, try_out
from trainjob.train.optimizers import build as build_optimizer
from trainjob.train.trace import Trace

# Without a backward pass no activations are kept, so that eight micro batches fit where one does.
_EVALUATED_AT_ONCE = 8


class TorchEngine:
    """A training of one process. Engines of several override what differs: the hooks below."""

    evaluates_together = False

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self.settings = parts.settings
        self.world = parts.world
        self.trace = parts.trace
        self.device = parts.world.device
        self.dtype = precision.floating_type(parts.settings.precision)
        self.model = parts.model.to(self.device, self.dtype)
        self.numerics = precision.build(parts.settings.precision, self.model, self.device)
        self.communication_seconds = 0.0
        self.metric_names: List[str] = []
        self._seed_device = _seeder(self.device)
        self._sums: List[Any] = []
        self._flags = Flags()
        self._on_cpu = self.device.type == "cpu"
        self.model.train()
        tried = self._try_out()
        self.optimizer = self.build_optimizer(tried.sparse)
        self._weights = list(self.model.parameters())
        looks = parts.settings.clip_norm is not None or parts.trace is not None
        self._before_step: Optional[Callable[[], None]] = self._clip_and_trace if looks else None
        self._loss_scale = self.loss_scale()
        self._first_micro_batch = parts.counts.first_micro_batch(parts.world.rank)

    # -- hooks ---------------------------------------------------------------------------------

    def loss_scale(self) -> float:
        """Return what each micro batch's loss is multiplied with, so that gradients add up to the reduction asked."""
        return 1.0 / self.settings.accumulation if self.settings.reduction == "mean" else 1.0

    def forward(self, inputs: Any) -> Any:
        """Return the model's outputs for one micro batch."""
        return self.model(inputs)

    def holding_back(self) -> Optional[ContextManager[Any]]:
        """Return the context for all micro batches of an update but the last; None where none is needed."""
        return None

    def backward(self, loss: Any, last: bool) -> None:  # noqa: ARG002 - engines that reduce meanwhile look at it
        """Add the gradients of one micro batch; `last`: of the last one of an update."""
        loss.backward()

    def build_optimizer(self, sparse: bool) -> Any:
        """Return the optimizer that the settings name, over the model's parameters; `sparse`: some gradients are."""
        return build_optimizer(self.model.parameters(), self.settings, sparse)

    def reduce_gradients(self) -> None:
        """Make the gradients of all instances one, where the backward passes have not."""

    def step(self) -> None:
        """Change the weights by their gradients."""
        self.numerics.step(self.optimizer, self._before_step)

    def after_step(self, update: int) -> None:
        """Do what follows the step that made `update`, counted from 0."""

    def share(self, sums: List[Any], flags: Flags) -> Pending:
        """Return the outcome of an update, of which this instance knows the `sums` over its micro batches."""
        if self.world.size == 1:
            return Known(self, sums, flags)
        vector = as_vector([*sums, float(flags.stop), float(flags.stale)], torch.float64, self.device)
        return Shared(self, self.world.sum_later(vector), self.parts.counts.micro_batches)

    # -- training ------------------------------------------------------------------------------

    def blocks(self, source: Any, start: int, end: int) -> Generator[Block, None, None]:
        """Return this instance's blocks for updates `start` to `end`."""
        pin = self.device.type == "cuda"
        return gathered(source, self.parts.counts, self.world.rank, start, end, self.settings.workers, pin)

    def train(self, block: Block, flags: Flags) -> Pending:
        """Make the one update of `block`."""
        update = block.first_update
        self._set_learning_rate(update)
        for weight in self._weights:  # what the optimizer's zero_grad does, at a tenth of the time
            weight.grad = None
        self._sums, self._flags = [], flags
        with self.numerics.during_update():
            self._micro_batches(block)
        self.reduce_gradients()
        self.step()
        self.after_step(update)
        if self.trace is not None:
            self.trace.weights(update + 1, self.model)
        return self.share(self._sums, flags)

    def _clip_and_trace(self) -> None:
        if self.settings.clip_norm is not None:
            torch.nn.utils.clip_grad_norm_(self._weights, self.settings.clip_norm)
        if self.trace is not None:
            self.trace.gradients(self.model)

    def _micro_batches(self, block: Block) -> None:
        """Add up gradients, and in `_sums` loss and metrics, over this instance's micro batches."""
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
            self._one_micro_batch(*rows, last=number == count - 1)

    def _one_micro_batch(self, inputs: Any, targets: Any, last: bool) -> None:
        context = None if last else self.holding_back()
        if context is None:
            self._forward_and_backward(inputs, targets, last)
        else:
            with context:
                self._forward_and_backward(inputs, targets, last)

    def _forward_and_backward(self, inputs: Any, targets: Any, last: bool) -> None:
        with self.numerics.during_forward():
            outputs = self.forward(self._normalised(inputs))
            loss = self.parts.task.loss(outputs, targets)
        values = self._values(loss, outputs, targets)
        self._sums = [total + value for total, value in zip(self._sums, values)] if self._sums else values
        loss = self.numerics.scaled(loss)
        self.backward(loss if self._loss_scale == 1.0 else loss * self._loss_scale, last)

    def _values(self, loss: Any, outputs: Any, targets: Any) -> List[Any]:
        """Return loss and metrics of a micro batch: numbers, or on a GPU, which is not waited for, tensors."""
        shown = loss.detach()
        if self.settings.loss_is_summed:
            shown = shown / nested.count(targets)
        values = [shown]
        if self.metric_names:
            with torch.no_grad():
                metrics = self.parts.task.metrics(outputs, targets)
            values += [metrics[name] for name in self.metric_names]
        return [float(value) for value in values] if self._on_cpu else values

    def _set_learning_rate(self, update: int) -> None:
        rate = self.parts.learning_rate(update)
        for group in self.optimizer.param_groups:
            group["lr"] = rate

    def _to_device(self, value: Any) -> Any:
        if self._on_cpu:
            return value
        return nested.convert(lambda tensor: tensor.to(self.device, non_blocking=True), value)

    def _normalised(self, inputs: Any) -> Any:
        if self.parts.normalise is not None:
            inputs = self.parts.normalise(inputs, self.dtype)
        elif self.dtype is not torch.float32:
            inputs = nested.convert(self._as_weights, inputs)
        return self.numerics.inputs(inputs)

    def _as_weights(self, tensor: Any) -> Any:
        return tensor.to(self.dtype) if tensor.is_floating_point() else tensor

    # -- evaluation ----------------------------------------------------------------------------

    @property
    def evaluation_batch(self) -> int:
        """Return the samples that are evaluated at once."""
        return self.settings.micro_batch * _EVALUATED_AT_ONCE

    def evaluate(self, inputs: Any, targets: Any) -> List[float]:
        """Return loss and metrics of some held-out samples, means over them."""
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
        """Give every instance the first one's buffers: each has seen micro batches of its own."""
        self.world.synchronise(list(self.model.buffers()))

    # -- state ---------------------------------------------------------------------------------

    def state(self) -> State:
        """Return the model's and the optimizer's tensors, by name."""
        optimizer = optimizer_tensors(self.optimizer, self.model)
        return State(model_tensors(self.model), optimizer, self.numerics.state())

    def load(self, state: State) -> None:
        """Take up training from `state`."""
        load_model(self.model, state.model)
        load_optimizer(self.optimizer, self.model, state.optimizer)
        self.numerics.load(state.precision)

    def is_finite(self) -> bool:
        """Return whether no weight is infinite or not a number."""
        with torch.no_grad():
            # A sum is infinite or not a number where an element is: one pass, no mask.
            return all(bool(torch.isfinite(weight.sum())) for weight in self.model.parameters())

    # -- before the first update ---------------------------------------------------------------

    def trial_batch(self) -> Any:
        """Return inputs and targets of the trial micro batch as the model takes them, dropout seeded as for it."""
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

    def _note_model(self, trace: Trace) -> None:
        def inputs() -> Any:
            return self.trial_batch()[0]

        trace.model(self.model, is_repeatable(self.model, inputs), reads_buffers(self.model, inputs))


def _seeder(device: torch.device) -> Any:
    """Return what seeds the generator that layers on `device` draw from."""
    # On the CPU straight to the generator: torch.manual_seed also asks every other kind of device.
    return torch.manual_seed if device.type == "cuda" else torch.default_generator.manual_seed
