"""IPUs through poptorch: a block of updates goes to the device at once, from one instance or from several.

The device sums gradients over accumulation, replicas and instances, and makes the steps; Horovod averages the reported
loss and metrics. With reduction "sum" the learning rate acts as if it were accumulation × replicas times as large. It
changes between blocks: all updates of a block use the rate of its first. Dropout uses the device's own generator.
"""

from __future__ import annotations

import copy
from typing import Dict, Generator, List, Sequence, Tuple

import torch
from torch.utils.data import Dataset

from trainjob.contract import clock
from trainjob.train.engines.base import BlockOutcome, Engine, EngineParts, Pending
from trainjob.train.engines.horovod_world import HorovodWorld
from trainjob.train.engines.ipu import model as ipu_model
from trainjob.train.engines.ipu import options as ipu_options
from trainjob.train.engines.trial import refuse_unused, try_out
from trainjob.train.optimizers import parameter_groups
from trainjob.train.recording.state import State, load_model, model_tensors
from trainjob.train.samples import nested
from trainjob.train.samples.arithmetic import Arithmetic
from trainjob.train.samples.batches import Block, seeded_indices
from trainjob.train.samples.batches import blocks as gathered
from trainjob.train.samples.nested import Nested
from trainjob.train.samples.sources import DatasetSource, MapDataset, SeededDataset, Source, collate
from trainjob.train.stopping import Flags


def build(parts: EngineParts) -> Engine:
    """Return the engine; all instances must build it together."""
    return IpuEngine(parts)


class IpuEngine:
    """The model on this instance's IPUs."""

    shards = False
    evaluates_together = True  # instances share a partition, so all must call the device together

    def __init__(self, parts: EngineParts) -> None:
        self.parts, self.settings, self.world = parts, parts.settings, parts.world
        self.communication_seconds = 0.0
        self.ipus = ipu_options.open_ipus(parts.settings, parts.world.rank)
        self._input_type, weight_type = ipu_model.types(parts.settings.precision)
        # A separate copy, made before the host uses it, because it may cache values in the host's type.
        on_device = copy.deepcopy(parts.normalise) if parts.settings.eight_bit_io else None
        # One micro batch on the host in 32 bits.
        inputs, targets = parts.trial
        parts.model.train()
        tried = try_out(parts.task, parts.model, self._normalised(inputs, torch.float32), targets)
        if tried.unused and not parts.settings.allow_unused_parameters:
            raise refuse_unused(tried.unused)
        self.metric_names = tried.metric_names
        self.model = parts.model.to(weight_type)
        poptorch = self.ipus.poptorch
        ipu_model.split(poptorch, self.model, parts.task, parts.settings.ipus_per_replica)
        self.world.synchronise(list(model_tensors(self.model).values()))
        ipu_model.check_layout(self.ipus)
        self._wrapped = ipu_model.OnDevice(self.model, parts.task, on_device, poptorch.identity_loss)
        self._optimizer = ipu_options.build_optimizer(
            poptorch, parameter_groups(self.model, parts.task), parts.settings
        )
        self._rate = parts.settings.learning_rate
        self._options = ipu_options.training_options(self.ipus)
        self._training = poptorch.trainingModel(self._wrapped.train(), self._options, self._optimizer)
        self._evaluation = ipu_model.Evaluation(self.ipus, self._wrapped, parts)
        if parts.trace is not None:
            # An IPU has its own generator for layers that draw random numbers.
            kinds = (torch.nn.modules.dropout._DropoutNd, torch.nn.RReLU)
            drawing = [layer for layer in self.model.modules() if isinstance(layer, kinds)]
            is_repeatable = not any(getattr(layer, "p", 1.0) > 0 for layer in drawing)
            parts.trace.model(self.model, is_repeatable, False)

    # -- training ------------------------------------------------------------------------------

    def blocks(self, source: Source, start: int, end: int) -> Generator[Block, None, None]:
        """Yield this instance's blocks; those of a user's own Dataset come through poptorch's asynchronous loader."""
        counts, instance = self.parts.counts, self.world.rank
        if not isinstance(source, DatasetSource):
            yield from gathered(source, counts, instance, start, end)
            return
        poptorch = self.ipus.poptorch
        loader = poptorch.DataLoader(
            self._options,
            Reordered(source.dataset, counts, instance, start, end),
            batch_size=counts.micro_batch,
            shuffle=False,
            num_workers=self.settings.workers,
            persistent_workers=False,
            # Every instance already requests its own samples only.
            auto_distributed_partitioning=False,
            mode=poptorch.DataLoaderMode.Async,
            async_options={"load_indefinitely": False},
            collate_fn=collate,
        )
        try:
            for number, (inputs, targets) in enumerate(loader):
                yield Block(start + number * counts.device_iterations, counts.device_iterations, inputs, targets)
        finally:
            loader.terminate()

    def train(self, block: Block, flags: Flags) -> Pending:
        """Make the updates of `block`; they are complete on return."""
        self._evaluation.let_go()
        if self._training.isCompiled() and not self._training.isAttachedToDevice():
            self._training.attachToDevice()
        rate = self.parts.learning_rate(block.first_update)
        if rate != self._rate:
            for group in self._optimizer.param_groups:
                group["lr"] = rate
            self._training.setOptimizer(self._optimizer)
            self._rate = rate
        results = self._training(self._as_sent(block.inputs), block.targets)
        if self.parts.trace is not None:
            self._trace(block)
        outcome = self._outcome(results, block, flags)
        return lambda: outcome

    def _outcome(self, results: Sequence[torch.Tensor], block: Block, flags: Flags) -> BlockOutcome:
        """Return loss and metrics of each update: means over its micro batches and over the instances."""
        means = [result.reshape(block.updates, -1).double().mean(1) for result in results]
        if self.settings.loss_is_summed:
            means[0] = means[0] / self.settings.micro_batch
        signals = torch.tensor([float(flags.stop), float(flags.stale)], dtype=torch.float64)
        *means, signals = self._averaged([*means, signals])
        loss, *metrics = [mean.tolist() for mean in means]
        stop, stale = (value > 0 for value in signals.tolist())
        named = [dict(zip(self.metric_names, values)) for values in zip(*metrics)] or [{} for _ in loss]
        return BlockOutcome(loss, named, Flags(stop, stale))

    def _averaged(self, tensors: List[torch.Tensor]) -> List[torch.Tensor]:
        if not isinstance(self.world, HorovodWorld):
            return tensors
        start = clock.monotonic()
        self.world.waits = True
        horovod = self.world.horovod
        averaged: List[torch.Tensor] = horovod.grouped_allreduce(tensors, op=horovod.Average, name="trainjob.outcome")
        self.world.waits = False
        self.communication_seconds += clock.monotonic() - start
        return averaged

    def _as_sent(self, inputs: Nested) -> Nested:
        """Return inputs as they are sent to the device: as bytes, or normalised here and in the type of inputs."""
        if self.settings.eight_bit_io and self.parts.normalise is not None:
            return inputs
        sent = self._normalised(inputs, torch.float32)
        return nested.convert(
            lambda tensor: tensor.to(self._input_type) if tensor.is_floating_point() else tensor, sent
        )

    def _normalised(self, inputs: Nested, dtype: torch.dtype) -> Nested:
        return inputs if self.parts.normalise is None else self.parts.normalise(inputs, dtype)

    def _trace(self, block: Block) -> None:
        """Record the last update of a block; the device shows neither the weights in between nor gradients."""
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
        """Compile both models into the cache, without running them."""
        count = self.settings.device_iterations * self.parts.counts.micro_batches_per_instance
        inputs, targets = nested.convert(lambda tensor: torch.cat([tensor] * count), self.parts.trial)
        self._training.compile(self._as_sent(inputs), targets)
        self._evaluation.compile(self._as_sent)

    # -- evaluation ----------------------------------------------------------------------------

    @property
    def evaluation_batch(self) -> int:
        """The number of samples in one call of the evaluation."""
        return self._evaluation.batch

    def before_evaluation(self) -> None:
        """Copy the weights to the host, synchronise the buffers, and free the device."""
        self._weights_to_host()
        self.world.synchronise(list(self.model.buffers()))
        if self._training.isCompiled() and self._training.isAttachedToDevice():
            self._training.detachFromDevice()
        self._evaluation.weights_changed()

    def after_evaluation(self) -> None:
        """Do nothing: the weights on the device have not changed."""

    def evaluate(self, inputs: Nested, targets: Nested) -> List[float]:
        """Return the means of the loss and of each metric over some held-out samples."""
        return self._evaluation.values(self._as_sent(inputs), targets, self.metric_names)

    # -- state ---------------------------------------------------------------------------------

    def state(self) -> State:
        """Return weights, buffers, and the optimizer state as poptorch reads it from the device."""
        self._weights_to_host()
        return State(model_tensors(self.model), ipu_options.optimizer_state(self._optimizer), {})

    def load(self, state: State) -> None:
        """Continue training from `state`, whose weights are as rank 0 has them."""
        load_model(self.model, state.model)
        self.world.synchronise(list(model_tensors(self.model).values()))
        if self._training.isCompiled():
            self._training.copyWeightsToDevice()
        if state.optimizer:
            ipu_options.load_optimizer(self._optimizer, state.optimizer)

    def is_finite(self) -> bool:
        """Return whether all weights are finite."""
        self._weights_to_host()
        return all(bool(torch.isfinite(weight.float().sum())) for weight in self.model.parameters())

    def _weights_to_host(self) -> None:
        if self._training.isCompiled() and self._training.isAttachedToDevice():
            self._training.copyWeightsToHost()


class Reordered(Dataset):  # type: ignore[type-arg] # not generic in torch 1.10
    """The samples that one instance takes in updates `start` to `end`, in order and by number."""

    def __init__(self, dataset: MapDataset, counts: Arithmetic, instance: int, start: int, end: int) -> None:
        self._dataset = SeededDataset(dataset)
        self._counts, self._instance, self._start, self._end = counts, instance, start, end
        self._of_update: Dict[int, List[Tuple[int, int]]] = {}

    def __len__(self) -> int:
        return (self._end - self._start) * self._counts.share

    def __getitem__(self, number: int) -> object:
        """Return the sample at position `number`, made with the seed of its update and place."""
        if not 0 <= number < len(self):
            raise IndexError(number)
        update, place = divmod(number, self._counts.share)
        if update not in self._of_update:  # only the current one is kept: samples are requested in order
            self._of_update = {update: seeded_indices(self._counts, self._instance, self._start + update, 1)}
        return self._dataset[self._of_update[update][place]]
