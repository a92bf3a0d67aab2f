"""IPUs through poptorch: a block of updates goes to the device at once, alone or as one instance of several.

The device sums gradients over accumulation, replicas and instances, and steps; Horovod takes means of what is shown.
With reduction "sum" the learning rate acts as if it were accumulation × replicas times as large. It changes between
blocks: the updates of one share the rate of its first. Dropout draws from the device's own generator.
"""

from __future__ import annotations

import copy
import time
from typing import Any, Generator, List

import torch

from trainjob.train import nested
from trainjob.train.batches import Block
from trainjob.train.batches import blocks as gathered
from trainjob.train.engines import ipu_layout, ipu_loading, ipu_model, ipu_optimizer, ipu_options
from trainjob.train.engines.base import Engine, Flags, Outcome, Parts, Pending, State
from trainjob.train.engines.horovod_world import HorovodWorld
from trainjob.train.engines.ipu_evaluation import Evaluation
from trainjob.train.engines.state import load_model, model_tensors
from trainjob.train.engines.trial import refuse_unused, try_out
from trainjob.train.sources import DatasetSource


def build(parts: Parts) -> Engine:
    """Return the engine; all instances must build it together."""
    return IpuEngine(parts)


class Read(Pending):
    """An outcome that is there already."""

    def __init__(self, outcome: Outcome) -> None:
        self._outcome = outcome

    def read(self) -> Outcome:
        """Return it."""
        return self._outcome


class IpuEngine:
    """The model on this instance's IPUs."""

    evaluates_together = True  # instances share a partition: where one calls the device, all do

    def __init__(self, parts: Parts) -> None:
        self.parts, self.settings, self.world = parts, parts.settings, parts.world
        self.communication_seconds = 0.0
        self.ipus = ipu_options.open_ipus(parts.settings, parts.world.rank)
        self._input_type, weight_type = ipu_model.types(parts.settings.precision)
        # A copy of its own, before the host has used it: it may keep what it works with in the host's type.
        on_device = copy.deepcopy(parts.normalise) if parts.settings.eight_bit_io else None
        self.metric_names = self._try_out()
        self.model = parts.model.to(weight_type)
        poptorch = self.ipus.poptorch
        ipu_model.split(poptorch, self.model, parts.task, parts.settings.ipus_per_replica)
        self.world.synchronise(list(model_tensors(self.model).values()))
        ipu_layout.check(self.ipus)
        self._wrapped = ipu_model.OnDevice(self.model, parts.task, on_device, poptorch.identity_loss)
        self._optimizer = ipu_optimizer.build(poptorch, self.model.parameters(), parts.settings)
        self._rate = parts.settings.learning_rate
        self._options = ipu_options.training_options(self.ipus)
        self._training = poptorch.trainingModel(self._wrapped.train(), self._options, self._optimizer)
        self._evaluation = Evaluation(self.ipus, self._wrapped, parts)
        if parts.trace is not None:
            parts.trace.model(self.model, not _draws(self.model), False)

    def _try_out(self) -> List[str]:
        """Return the metrics' names, after one micro batch in 32 bits on the host has shown that the task fits."""
        inputs, targets = self.parts.trial
        self.parts.model.train()
        tried = try_out(self.parts.task, self.parts.model, self._normalised(inputs, torch.float32), targets)
        if tried.unused and not self.settings.allow_unused_parameters:
            raise refuse_unused(tried.unused)
        return tried.metric_names

    # -- training ------------------------------------------------------------------------------

    def blocks(self, source: Any, start: int, end: int) -> Generator[Block, None, None]:
        """Return this instance's blocks, made ahead."""
        counts, instance, workers = self.parts.counts, self.world.rank, self.settings.workers
        if isinstance(source, DatasetSource):
            poptorch = self.ipus.poptorch
            return ipu_loading.blocks(poptorch, self._options, source, counts, instance, start, end, workers)
        return gathered(source, counts, instance, start, end)

    def train(self, block: Block, flags: Flags) -> Pending:
        """Make the updates of `block`; they are over when it returns."""
        self._take_device()
        self._set_learning_rate(block.first_update)
        results = self._training(self._as_sent(block.inputs), block.targets)
        if self.parts.trace is not None:
            self._trace(block)
        return Read(self._outcome(results, block, flags))

    def _set_learning_rate(self, update: int) -> None:
        rate = self.parts.learning_rate(update)
        if rate != self._rate:
            for group in self._optimizer.param_groups:
                group["lr"] = rate
            self._training.setOptimizer(self._optimizer)
            self._rate = rate

    def _outcome(self, results: Any, block: Block, flags: Flags) -> Outcome:
        """Return loss and metrics of each update: means over its micro batches, and over the instances."""
        means = [ipu_layout.by_update(result, block.updates).double().mean(1) for result in results]
        if self.settings.loss_is_summed:
            means[0] = means[0] / self.settings.micro_batch
        told = torch.tensor([float(flags.stop), float(flags.stale)], dtype=torch.float64)
        *means, told = self._averaged([*means, told])
        loss, *metrics = [mean.tolist() for mean in means]
        stop, stale = (value > 0 for value in told.tolist())
        named = [dict(zip(self.metric_names, values)) for values in zip(*metrics)] or [{} for _ in loss]
        return Outcome(loss, named, Flags(stop, stale))

    def _averaged(self, tensors: List[Any]) -> List[Any]:
        if not isinstance(self.world, HorovodWorld):
            return tensors
        start = time.perf_counter()
        self.world.waits = True
        horovod = self.world.horovod
        found: List[Any] = horovod.grouped_allreduce(tensors, op=horovod.Average, name="trainjob.outcome")
        self.world.waits = False
        self.communication_seconds += time.perf_counter() - start
        return found

    def _as_sent(self, inputs: Any) -> Any:
        """Return inputs as they cross to the device: whole bytes, or normalised here in the type of inputs."""
        if self.settings.eight_bit_io and self.parts.normalise is not None:
            return inputs
        sent = self._normalised(inputs, torch.float32)
        return nested.convert(
            lambda tensor: tensor.to(self._input_type) if tensor.is_floating_point() else tensor, sent
        )

    def _normalised(self, inputs: Any, dtype: torch.dtype) -> Any:
        return inputs if self.parts.normalise is None else self.parts.normalise(inputs, dtype)

    def _trace(self, block: Block) -> None:
        """Note the last update of a block: the device does not show the weights between them, nor gradients."""
        trace, share, size = self.parts.trace, self.parts.counts.share, self.settings.micro_batch
        assert trace is not None  # noqa: S101 - asked before
        begin, first = (block.updates - 1) * share, self.parts.counts.first_micro_batch(self.world.rank)
        for number in range(self.parts.counts.micro_batches_per_instance):
            at = begin + number * size
            rows = nested.rows((block.inputs, block.targets), at, at + size)
            trace.micro_batch(first + number, *rows)
        self._training.copyWeightsToHost()
        trace.weights(block.first_update + block.updates, self.model)

    # -- compiling, device ---------------------------------------------------------------------

    def compile(self) -> None:
        """Compile both models, for the cache, without running them."""
        count = self.settings.device_iterations * self.parts.counts.micro_batches_per_instance
        inputs, targets = nested.convert(lambda tensor: torch.cat([tensor] * count), self.parts.trial)
        self._training.compile(self._as_sent(inputs), targets)
        self._evaluation.compile(self._as_sent)

    def _take_device(self) -> None:
        self._evaluation.let_go()
        if self._training.isCompiled() and not self._training.isAttachedToDevice():
            self._training.attachToDevice()

    # -- evaluation ----------------------------------------------------------------------------

    @property
    def evaluation_batch(self) -> int:
        """Samples that one call of the evaluation takes."""
        return self._evaluation.batch

    def before_evaluation(self) -> None:
        """Bring the weights to the host, with the first instance's buffers, and make room on the device."""
        self._weights_to_host()
        self.world.synchronise(list(self.model.buffers()))
        if self._training.isCompiled() and self._training.isAttachedToDevice():
            self._training.detachFromDevice()
        self._evaluation.weights_changed()

    def evaluate(self, inputs: Any, targets: Any) -> List[float]:
        """Return loss and metrics of some held-out samples, means over them."""
        return self._evaluation.values(self._as_sent(inputs), targets, self.metric_names)

    # -- state ---------------------------------------------------------------------------------

    def state(self) -> State:
        """Return weights and buffers. What the optimizer has gathered stays on the IPU."""
        self._weights_to_host()
        return State(model_tensors(self.model), {}, {})

    def load(self, state: State) -> None:
        """Take up training from the weights in `state`, as rank 0 has them; the optimizer begins afresh."""
        load_model(self.model, state.model)
        self.world.synchronise(list(model_tensors(self.model).values()))
        if self._training.isCompiled():
            self._training.copyWeightsToDevice()

    def is_finite(self) -> bool:
        """Return whether no weight is infinite or not a number."""
        self._weights_to_host()
        return all(bool(torch.isfinite(weight.float().sum())) for weight in self.model.parameters())

    def _weights_to_host(self) -> None:
        if self._training.isCompiled() and self._training.isAttachedToDevice():
            self._training.copyWeightsToHost()


def _draws(model: torch.nn.Module) -> bool:
    """Return whether a layer draws random numbers, which an IPU takes from a generator of its own."""
    dropping = (torch.nn.modules.dropout._DropoutNd, torch.nn.RReLU)
    return any(isinstance(layer, dropping) and getattr(layer, "p", 1.0) > 0 for layer in model.modules())
