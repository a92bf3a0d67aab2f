"""Models as IPUs run them: the task's, with normalisation, loss and metrics on the device, and a test of the layout.

How poptorch lays a combined batch out over device iterations, replicas and accumulation is not documented. The engine
assumes only this: device iterations are outermost, so that the samples of an update lie together and updates are in
order; results are laid out like inputs; gradients are summed over all replicas of all instances. Which replica takes
which micro batch of an update makes no difference to the weights.
"""

from __future__ import annotations

import copy
from types import ModuleType
from typing import Callable, List, Optional, Tuple

import torch
from torch import nn

from trainjob.contract.errors import UserError
from trainjob.train.engines.base import EngineParts
from trainjob.train.engines.ipu.options import Ipus, evaluation_options, training_options
from trainjob.train.samples import nested
from trainjob.train.samples.nested import Nested
from trainjob.train.tasks.base import Task

Normalise = Callable[[Nested, torch.dtype], Nested]
IdentityLoss = Callable[..., torch.Tensor]  # poptorch.identity_loss

_STEP = 2.0**-10  # of the test of the layout; exact in every type


class OnDevice(nn.Module):
    """Maps inputs, as sent to the device, to outputs; with targets, to the loss and the metrics of the micro batch."""

    def __init__(
        self, model: nn.Module, task: Task, normalise: Optional[Normalise], identity_loss: IdentityLoss
    ) -> None:
        super().__init__()
        self.model = model
        # A function instead of the task, so that copying the model does not copy whatever the task holds.
        self._judge = _judge(task, identity_loss)
        self._normalise = normalise  # None: the host does it
        self._dtype = next(model.parameters()).dtype

    def forward(self, inputs: Nested, targets: Nested = None) -> Nested:
        """Return the outputs; with `targets`, the loss and the metrics in the order of their names."""
        if self._normalise is not None:
            inputs = self._normalise(inputs, self._dtype)
        outputs = self.model(nested.convert(self._as_weights, inputs))
        if targets is None:
            return outputs
        return self._judge(outputs, targets)

    def _as_weights(self, tensor: torch.Tensor) -> torch.Tensor:
        # A 32-bit model may have 16-bit inputs, which halves the bytes to send.
        return tensor.to(self._dtype) if tensor.is_floating_point() else tensor


def _judge(task: Task, identity_loss: IdentityLoss) -> Callable[[Nested, Nested], Tuple[torch.Tensor, ...]]:
    def judge(outputs: Nested, targets: Nested) -> Tuple[torch.Tensor, ...]:
        loss = identity_loss(task.loss(outputs, targets), reduction="mean")
        metrics = task.metrics(outputs, targets)
        return (loss, *[metrics[name] for name in sorted(metrics)])

    return judge


def types(precision: str) -> Tuple[torch.dtype, torch.dtype]:
    """Return the types of inputs and weights. Raises UserError for a precision that IPUs don't have."""
    kinds = {"16": torch.float16, "32": torch.float32}
    inputs, _, weights = precision.partition(".")
    if inputs not in kinds or weights not in kinds or (inputs, weights) == ("32", "16"):
        raise UserError("the IPU has no precision %s" % precision, "choose one of 16.16, 16.32, 32.32")
    return kinds[inputs], kinds[weights]


def split(poptorch: ModuleType, model: nn.Module, task: Task, ipus: int) -> None:
    """Split the model over several IPUs at the layers that the task names. Raises UserError for a wrong number."""
    names: List[str] = list(getattr(task, "split_points", ()))
    if ipus == 1:
        return
    if len(names) != ipus - 1:
        raise UserError(
            "a model on %d IPUs needs %d split points, and the task's split_points are %s"
            % (ipus, ipus - 1, ", ".join(names) or "none"),
            "use --ipus-per-replica %d" % (len(names) + 1),
        )
    for number, name in enumerate(names, 1):
        above, _, last = name.rpartition(".")
        parent = model.get_submodule(above) if above else model
        setattr(parent, last, poptorch.BeginBlock(getattr(parent, last), ipu_id=number))


class Evaluation:
    """An inference model beside the training model; only one of them holds the device at a time."""

    def __init__(self, ipus: Ipus, wrapped: torch.nn.Module, parts: EngineParts) -> None:
        self._parts = parts
        # A copy in evaluation mode, whatever the mode of the training model, that shares parameters and buffers.
        shared = {id(tensor): tensor for tensor in [*wrapped.parameters(), *wrapped.buffers()]}
        self._wrapped = copy.deepcopy(wrapped, shared).eval()
        options = evaluation_options(ipus)
        self.batch = parts.settings.micro_batch * ipus.replicas * max(1, parts.settings.ipus_per_replica)
        self._inference = ipus.poptorch.inferenceModel(self._wrapped, options)

    def compile(self, as_sent: Callable[[Nested], Nested]) -> None:
        """Compile without running."""
        self._inference.compile(as_sent(_padded(self._parts.trial[0], self.batch)))

    def values(self, inputs: Nested, targets: Nested, metric_names: List[str]) -> List[float]:
        """Return the means of loss and metrics over at most `batch` samples, without the padding of the call."""
        samples = nested.count(inputs)
        # In 32 bits, because the host computes the loss and supports few operations in 16.
        outputs = nested.convert(
            lambda tensor: tensor.float() if tensor.dtype is torch.float16 else tensor,
            nested.rows(self._inference(_padded(inputs, self.batch)), 0, samples),
        )
        with torch.no_grad():
            loss = self._parts.task.loss(outputs, targets)
            metrics = self._parts.task.metrics(outputs, targets)
        shown = float(loss) / samples if self._parts.settings.loss_is_summed else float(loss)
        return [shown, *[float(metrics[name]) for name in metric_names]]

    def weights_changed(self) -> None:
        """Copy the host's current weights to the device."""
        if self._inference.isCompiled():
            if not self._inference.isAttachedToDevice():
                self._inference.attachToDevice()
            self._inference.copyWeightsToDevice()

    def let_go(self) -> None:
        """Release the device for training."""
        if self._inference.isCompiled() and self._inference.isAttachedToDevice():
            self._inference.detachFromDevice()


def _padded(inputs: Nested, size: int) -> Nested:
    """Return inputs padded to `size` samples by repeating the first one."""

    def pad(tensor: torch.Tensor) -> torch.Tensor:
        missing = size - tensor.shape[0]
        return torch.cat([tensor, tensor[:1].expand(missing, *tensor.shape[1:])]) if missing > 0 else tensor

    return nested.convert(pad, inputs)


class _Probe(nn.Module):
    """Returns its inputs, each with the weight, which every update moves by the number of micro batches."""

    def __init__(self, poptorch: ModuleType, ipus: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1, 1))
        self._loss = poptorch.identity_loss
        stages = [poptorch.BeginBlock(nn.Identity(), ipu_id=number) for number in range(1, ipus)]
        self.stages = nn.ModuleList(stages)

    def forward(self, numbers: torch.Tensor) -> Tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """(1, 1) → the same, the weight as (1, 1), and the loss."""
        for stage in self.stages:
            numbers = stage(numbers)
        return numbers + 0.0, self.weight + 0.0 * numbers, self._loss(self.weight.sum(), reduction="sum")


def check_layout(ipus: Ipus) -> None:
    """Train a model of one weight, and raise UserError if the results contradict this module's assumption.

    All instances must call it together. If the job only compiles, so does this.
    """
    poptorch, settings = ipus.poptorch, ipus.settings
    per_update = ipus.replicas * settings.accumulation
    if settings.device_iterations * per_update * settings.instances == 1:
        return
    probe = _Probe(poptorch, settings.ipus_per_replica)
    optimizer = poptorch.optim.SGD(probe.parameters(), lr=_STEP, momentum=0.0, use_combined_accum=False)
    options = training_options(ipus, reduction="sum").showCompilationProgressBar(False)
    program = poptorch.trainingModel(probe, options, optimizer)
    numbers = torch.arange(float(settings.device_iterations * per_update)).view(-1, 1)
    if ipus.compile_only:
        program.compile(numbers)
        return
    returned, weights, _ = program(numbers)
    program.destroy()
    steps = torch.arange(float(settings.device_iterations)).repeat_interleave(per_update)
    expected = -steps * _STEP * settings.replicas * settings.accumulation
    if not torch.equal(returned.float(), numbers) or not torch.allclose(weights.float().flatten(), expected):
        raise UserError(
            "this poptorch lays out a combined batch differently from what engine ipu assumes, or does not sum "
            "gradients over all replicas, so nothing was trained. A test program with numbered micro batches got them "
            "back as %s, with weights %s where %s were expected."
            % (returned.flatten().tolist(), weights.flatten().tolist(), expected.tolist()),
            "Use --device-iterations 1, and report it",
        )
