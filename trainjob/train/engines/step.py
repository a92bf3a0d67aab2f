"""One weight update with torch, as every engine but the IPU's makes it: micro batches, gradients, step."""

from __future__ import annotations

from typing import Any, ContextManager, Dict, List, Optional

import torch

from trainjob.train import nested
from trainjob.train.batches import Block
from trainjob.train.draws import micro_batch_seed
from trainjob.train.engines.base import Flags, Outcome, Parts, State
from trainjob.train.engines.state import load_model, load_optimizer, model_tensors, optimizer_tensors
from trainjob.train.engines.trial import parameters_without_gradient, refuse_unused
from trainjob.train.optimizers import build as build_optimizer
from trainjob.train.precision import floating_type
from trainjob.train.world import Later


class TorchEngine:
    """A training of one process. Engines of several override what differs: the three hooks below."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self.world = parts.world
        self.device = parts.world.device
        self.dtype = floating_type(parts.settings.precision)
        self.model = parts.model.to(self.device, self.dtype)
        self.communication_seconds = 0.0
        self.metric_names: List[str] = []
        self._seed_device = _seeder(self.device)
        self._refuse_unused_parameters()
        self.optimizer = build_optimizer(self.model.parameters(), parts.settings)
        self.callable = self.model  # what the forward goes through; ddp wraps it
        self._loss_scale = self.gradient_scale()
        self._flags = torch.zeros(2, dtype=torch.float64, device=self.device)
        self.model.train()

    # -- hooks ---------------------------------------------------------------------------------

    def gradient_scale(self) -> float:
        """Return what each micro batch's loss is multiplied with, so that gradients add up to the reduction asked."""
        return 1.0 / self.parts.settings.accumulation if self.parts.settings.reduction == "mean" else 1.0

    def backward(self, loss: Any, last: bool) -> None:  # noqa: ARG002 - engines that reduce look at it
        """Add the gradients of one micro batch; after the `last` one of an update they are summed up everywhere."""
        loss.backward()

    def holding_back(self, last: bool) -> Optional[ContextManager[Any]]:  # noqa: ARG002
        """Return the context for all micro batches of an update but the last; None where none is needed."""
        return None

    # -- training ------------------------------------------------------------------------------

    def train(self, block: Block, flags: Flags) -> "Shared":
        """Make the one update of `block`."""
        self._set_learning_rate(block.first_update)
        self.optimizer.zero_grad(set_to_none=True)
        sums = self._micro_batches(block)
        self.optimizer.step()
        return self._share(sums, flags)

    def _micro_batches(self, block: Block) -> Any:
        """Return the sums of loss and metrics over this instance's micro batches: (1 + metrics,)."""
        size, count = self.parts.settings.micro_batch, self.parts.settings.accumulation
        inputs, targets = self._to_device(block.inputs), self._to_device(block.targets)
        first = self.parts.counts.first_micro_batch(self.world.rank)
        sums: Any = None
        for number in range(count):
            begin, last = number * size, number == count - 1
            rows = (inputs, targets) if count == 1 else nested.rows((inputs, targets), begin, begin + size)
            self._seed_device(micro_batch_seed(self.parts.settings.seed, block.first_update, first + number))
            values = self._one_micro_batch(rows[0], rows[1], last)
            sums = values if sums is None else sums + values
        return sums

    def _one_micro_batch(self, inputs: Any, targets: Any, last: bool) -> Any:
        context = self.holding_back(last)
        if context is None:
            return self._forward_and_backward(inputs, targets, last)
        with context:
            return self._forward_and_backward(inputs, targets, last)

    def _forward_and_backward(self, inputs: Any, targets: Any, last: bool) -> Any:
        outputs = self.callable(self._normalised(inputs))
        loss = self.parts.task.loss(outputs, targets)
        self.backward(loss * self._loss_scale if self._loss_scale != 1.0 else loss, last)
        return self._values(loss, outputs, targets)

    def _values(self, loss: Any, outputs: Any, targets: Any) -> Any:
        with torch.no_grad():
            metrics = self.parts.task.metrics(outputs, targets)
            self.metric_names = sorted(metrics)
            shown = loss.detach() / nested.count(targets) if self.parts.settings.loss_is_summed else loss.detach()
            values = [shown] + [metrics[name] for name in self.metric_names]
            return torch.stack([value.to(torch.float64) for value in values])

    def _share(self, sums: Any, flags: Flags) -> "Shared":
        mine = self._flags
        if flags != (False, False):
            mine = torch.tensor([float(flags.stop), float(flags.stale)], dtype=torch.float64, device=self.device)
        return Shared(self, self.world.sum_later(torch.cat((sums, mine))))

    def trial_batch(self) -> Any:
        """Return inputs and targets of the trial micro batch as the model takes them."""
        inputs, targets = self._to_device(self.parts.trial)
        return self._normalised(inputs), targets

    def _set_learning_rate(self, update: int) -> None:
        rate = self.parts.learning_rate(update)
        for group in self.optimizer.param_groups:
            group["lr"] = rate

    def _to_device(self, value: Any) -> Any:
        if self.device.type == "cpu":
            return value
        return nested.convert(lambda tensor: tensor.to(self.device, non_blocking=True), value)

    def _normalised(self, inputs: Any) -> Any:
        if self.parts.normalise is not None:
            return self.parts.normalise(inputs, self.dtype)
        if self.dtype is torch.float32:
            return inputs
        return nested.convert(lambda tensor: tensor.to(self.dtype) if tensor.is_floating_point() else tensor, inputs)

    # -- evaluation ----------------------------------------------------------------------------

    def evaluate(self, inputs: Any, targets: Any) -> List[float]:
        """Return loss and metrics of some held-out samples, means over them."""
        self.model.eval()
        try:
            with torch.no_grad():
                targets = self._to_device(targets)
                outputs = self.model(self._normalised(self._to_device(inputs)))
                values: List[float] = self._values(self.parts.task.loss(outputs, targets), outputs, targets).tolist()
                return values
        finally:
            self.model.train()

    def before_evaluation(self) -> None:
        """Give every instance the first one's buffers: each has seen micro batches of its own."""
        self.world.synchronise(list(self.model.buffers()))

    # -- state ---------------------------------------------------------------------------------

    def state(self) -> State:
        """Return the model's and the optimizer's tensors, by name."""
        return State(model_tensors(self.model), optimizer_tensors(self.optimizer, self.model))

    def load(self, state: State) -> None:
        """Take up training from `state`."""
        load_model(self.model, state.model)
        load_optimizer(self.optimizer, self.model, state.optimizer)

    def is_finite(self) -> bool:
        """Return whether no weight is infinite or not a number."""
        with torch.no_grad():
            # A sum is infinite or not a number where an element is: one pass, no mask.
            return all(bool(torch.isfinite(weight.sum())) for weight in self.model.parameters())

    def _refuse_unused_parameters(self) -> None:
        self._seed_device(micro_batch_seed(self.parts.settings.seed, 0, 0))
        unused = parameters_without_gradient(self)
        if unused and not self.parts.settings.allow_unused_parameters:
            raise refuse_unused(unused)


class Shared:
    """The outcome of one update while the instances agree on it."""

    def __init__(self, engine: TorchEngine, sums: Later) -> None:
        self._engine = engine
        self._sums = sums

    def read(self) -> Outcome:
        """Return the means over all micro batches of the update, and the flags that any rank set."""
        *sums, stop, stale = self._sums.read()
        self._engine.communication_seconds += self._sums.waited
        means = [value / self._engine.parts.counts.micro_batches for value in sums]
        metrics: Dict[str, float] = dict(zip(self._engine.metric_names, means[1:]))
        return Outcome([means[0]], [metrics], Flags(stop > 0, stale > 0))


def _seeder(device: torch.device) -> Any:
    """Return what seeds the generator that layers on `device` draw from."""
    if device.type == "cuda":
        return lambda seed: torch.manual_seed(seed)
    # Straight to the generator: torch.manual_seed also asks every other kind of device.
    return torch.default_generator.manual_seed
