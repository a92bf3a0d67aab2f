"""torch's DistributedDataParallel: gradients are averaged in buckets while the backward pass goes on."""

from __future__ import annotations

import time
from typing import Any, ContextManager, List, Optional, Tuple

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from trainjob.train.engines.base import Engine, Flags, Parts, Pending
from trainjob.train.engines.outcome import Shared, as_vector
from trainjob.train.engines.step import TorchEngine
from trainjob.train.engines.trial import kept_buffers, restore_buffers
from trainjob.train.world import Later


def build(parts: Parts) -> Engine:
    """Return the engine; all ranks must build it together."""
    return DdpEngine(parts)


class WithTold(nn.Module):
    """A model, and beside it a parameter whose gradient is what this instance tells the others.

    Loss, metrics and flags so travel in a gradient bucket, which is reduced anyway: a collective of their own takes
    a sixth of the time of a small net's update (measured), even where nobody waits for it.
    """

    def __init__(self, model: nn.Module, numbers: int) -> None:
        super().__init__()
        first = next(model.parameters())
        self.model = model
        self.told = nn.Parameter(torch.zeros(numbers, dtype=first.dtype, device=first.device))

    def forward(self, inputs: Any) -> Tuple[Any, Any]:
        """Return the model's outputs, and the parameter."""
        # A view: DDP looks for used parameters behind the outputs, and would not find one that is an output itself.
        return self.model(inputs), self.told.view_as(self.told)


class DdpEngine(TorchEngine):
    """Every instance ends each update with the same gradients, and so with the same weights."""

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        self._with_told = WithTold(self.model, 1 + len(self.metric_names) + len(Flags()))
        self._ddp = DistributedDataParallel(
            self._with_told,
            bucket_cap_mb=parts.settings.bucket_mb,
            gradient_as_bucket_view=True,
            find_unused_parameters=parts.settings.allow_unused_parameters,
        )
        self._told: Any = None
        self._last_gradient_at = 0.0
        self._settle_buckets()

    def loss_scale(self) -> float:
        """DDP divides by the number of instances: undone where the sum is asked for."""
        scale = super().loss_scale()
        return scale if self.settings.reduction == "mean" else scale * self.world.size

    def forward(self, inputs: Any) -> Any:
        """Return the model's outputs for one micro batch."""
        outputs, self._told = self._ddp(inputs)
        return outputs

    def holding_back(self) -> Optional[ContextManager[Any]]:
        """Nothing is reduced before the last micro batch of an update."""
        return self._ddp.no_sync()

    def backward(self, loss: Any, last: bool) -> None:
        """Add the gradients; after the last micro batch, wait for the buckets still under way."""
        if not last:
            loss.backward()
            return
        self._last_gradient_at = 0.0
        # No optimizer holds this parameter, so nobody else forgets what the update before has told.
        self._with_told.told.grad = None
        torch.autograd.backward([loss, self._told], [None, self._tell()])
        if self._last_gradient_at:
            # All that is left once the last gradient is there is waiting for the other instances.
            self.communication_seconds += time.perf_counter() - self._last_gradient_at
        self.world.waits = False

    def _tell(self) -> Any:
        """Return what this instance tells the others: sums of loss and metrics, and flags."""
        values = [*self._sums, float(self._flags.stop), float(self._flags.stale)]
        return as_vector(values, self.dtype, self.device)

    def share(self, sums: List[Any], flags: Flags) -> Pending:  # noqa: ARG002 - told with the gradients
        """Return the outcome, which came with the gradients as means over the instances."""
        mean: Any = self._with_told.told.grad
        # A copy: the next update's backward pass overwrites the bucket.
        return Shared(self, Later(self.world, mean.clone()), self.parts.counts.micro_batches_per_instance)

    def _settle_buckets(self) -> None:
        """Let DDP put its buckets into their final order before the first update.

        DDP orders its buckets by the first backward pass, and so sums gradients in another order from the second on.
        A resumed run would sum its first update differently from the run it continues; after this pass neither does.
        """
        buffers = kept_buffers(self.model)
        arrived: List[Any] = []
        hooks = [weight.register_hook(_note(arrived, weight)) for weight in _trained(self.model)]
        inputs, targets = self.trial_batch()
        loss = self.parts.task.loss(self.forward(inputs), targets)
        torch.autograd.backward([loss, self._told], [None, torch.zeros_like(self._told)])
        for hook in hooks:
            hook.remove()
        arrived[-1].register_hook(self._note_last_gradient)
        restore_buffers(self.model, buffers)
        self.model.zero_grad(set_to_none=True)

    def _note_last_gradient(self, gradient: Any) -> None:  # noqa: ARG002 - torch hands it to every hook
        self._last_gradient_at = time.perf_counter()
        self.world.waits = True


def _trained(model: Any) -> List[Any]:
    return [weight for weight in model.parameters() if weight.requires_grad]


def _note(arrived: List[Any], weight: Any) -> Any:
    return lambda _gradient: arrived.append(weight)
