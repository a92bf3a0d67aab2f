"""torch's DistributedDataParallel: gradients are averaged in buckets during the backward pass."""

from __future__ import annotations

from typing import Any, ContextManager, List, Tuple

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from trainjob.contract import clock
from trainjob.train.engines.base import Engine, EngineParts, Number, Pending, as_vector
from trainjob.train.engines.step import TorchEngine
from trainjob.train.engines.trial import kept_buffers, restore_buffers
from trainjob.train.samples.nested import Nested
from trainjob.train.stopping import Flags
from trainjob.train.world import Later


def build(parts: EngineParts) -> Engine:
    """Return the engine; all ranks must build it together."""
    return DdpEngine(parts)


class WithMessage(nn.Module):
    """A model with one more parameter, whose gradient carries this instance's message to the others.

    Loss, metrics and flags thus travel in a gradient bucket, which is reduced anyway. A collective of their own would
    take a sixth of the time of a small net's update (measured), even if nobody waited for it.
    """

    def __init__(self, model: nn.Module, numbers: int) -> None:
        super().__init__()
        first = next(model.parameters())
        self.model = model
        self.message = nn.Parameter(torch.zeros(numbers, dtype=first.dtype, device=first.device))

    def forward(self, inputs: Nested) -> Tuple[Nested, torch.Tensor]:
        """Return the model's outputs, and the message."""
        # A view, because DDP searches behind the outputs for used parameters and misses one that is itself an output.
        return self.model(inputs), self.message.view_as(self.message)


class DdpEngine(TorchEngine):
    """Every instance ends each update with the same gradients, and so with the same weights."""

    averages = True

    def __init__(self, parts: EngineParts) -> None:
        super().__init__(parts)
        self._with_message = WithMessage(self.model, 1 + len(self.metric_names) + len(Flags()))
        self._ddp = DistributedDataParallel(
            self._with_message,
            bucket_cap_mb=parts.settings.bucket_mb,
            gradient_as_bucket_view=True,
            find_unused_parameters=parts.settings.allow_unused_parameters,
        )
        self._message = torch.empty(0)
        self._last_gradient_at = 0.0
        self.micro_batches_of_message = parts.counts.micro_batches_per_instance
        self.settle_buckets()

    def forward(self, inputs: Nested) -> Nested:
        """Return the model's outputs for one micro batch."""
        outputs, self._message = self._ddp(inputs)
        return outputs

    def holding_back(self) -> ContextManager[Any]:
        """Return the context in which nothing is reduced, for all micro batches of an update but the last."""
        return self._ddp.no_sync()

    def backward(self, loss: torch.Tensor, last: bool) -> None:
        """Add the gradients; after the last micro batch, wait for the buckets in progress."""
        if not last:
            loss.backward()
            return
        self._last_gradient_at = 0.0
        # No optimizer holds this parameter, so nothing else clears the message of the previous update.
        self._with_message.message.grad = None
        values = [*self._sums, float(self._flags.stop), float(self._flags.stale)]
        self._backward_with(as_vector(values, self.dtype, self.device), loss)
        if self._last_gradient_at:
            # After the last gradient, all that remains is waiting for the other instances.
            self.communication_seconds += clock.monotonic() - self._last_gradient_at
        self.world.waits = False

    def share(self, sums: List[Number], flags: Flags) -> Pending:  # noqa: ARG002 - sent with the gradients
        """Return the outcome, which arrived with the gradients."""
        reduced = self._with_message.message.grad
        assert reduced is not None  # noqa: S101 - the backward pass has set it
        # A copy, because the next backward pass overwrites the bucket.
        return self.outcome_of(Later(self.world, reduced.clone()), self.micro_batches_of_message)

    def settle_buckets(self) -> None:
        """Let DDP put its buckets into their final order before the first update.

        DDP orders its buckets by the first backward pass, and from the second on sums gradients in that order. Without
        this pass, the first update of a resumed run would be summed differently from that of the run it continues.
        """
        buffers = kept_buffers(self.model)
        arrived: List[torch.Tensor] = []
        trained = [weight for weight in self.model.parameters() if weight.requires_grad]
        hooks = [weight.register_hook(lambda _gradient, weight=weight: arrived.append(weight)) for weight in trained]
        inputs, targets = self.trial_batch()
        loss = self.parts.task.loss(self.forward(inputs), targets)
        self._backward_with(torch.zeros_like(self._message), loss)
        for hook in hooks:
            hook.remove()
        arrived[-1].register_hook(self._note_last_gradient)
        restore_buffers(self.model, buffers)
        self.model.zero_grad(set_to_none=True)

    def _backward_with(self, message: torch.Tensor, loss: torch.Tensor) -> None:
        # `message` is the product's gradient, bit for bit. Given to torch as a gradient, it would be compared with the
        # output's shape by torch's symbolic shapes, whose first import takes most of a second.
        torch.autograd.backward([loss, (self._message * message).sum()])

    def _note_last_gradient(self, gradient: torch.Tensor) -> None:  # noqa: ARG002 - torch passes it to every hook
        self._last_gradient_at = clock.monotonic()
        self.world.waits = True
