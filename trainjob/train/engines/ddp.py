"""torch's DistributedDataParallel: gradients are averaged in buckets while the backward pass goes on."""

from __future__ import annotations

import time
from typing import Any, ContextManager, List, Optional

from torch.nn.parallel import DistributedDataParallel

from trainjob.train.draws import micro_batch_seed
from trainjob.train.engines.base import Engine, Parts
from trainjob.train.engines.step import TorchEngine
from trainjob.train.engines.trial import restore_buffers, try_micro_batch


def build(parts: Parts) -> Engine:
    """Return the engine; all ranks must build it together."""
    return DdpEngine(parts)


class DdpEngine(TorchEngine):
    """Every instance ends each update with the same gradients, and so with the same weights."""

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        self.wrapped = DistributedDataParallel(
            self.model,
            bucket_cap_mb=parts.settings.bucket_mb,
            gradient_as_bucket_view=True,
            find_unused_parameters=parts.settings.allow_unused_parameters,
        )
        self.callable = self.wrapped
        self._last_gradient_at = 0.0
        self._settle_buckets()

    def gradient_scale(self) -> float:
        """DDP divides by the number of instances: undone where the sum is asked for."""
        scale = super().gradient_scale()
        return scale if self.parts.settings.reduction == "mean" else scale * self.world.size

    def holding_back(self, last: bool) -> Optional[ContextManager[Any]]:
        """Nothing is reduced before the last micro batch of an update."""
        return None if last else self.wrapped.no_sync()  # type: ignore[no-any-return]

    def backward(self, loss: Any, last: bool) -> None:
        """Add the gradients; after the last micro batch, wait for the buckets still under way."""
        self._last_gradient_at = 0.0
        loss.backward()
        if last and self._last_gradient_at:
            # All that is left once the last gradient is there is waiting for the other instances.
            self.communication_seconds += time.perf_counter() - self._last_gradient_at

    def _settle_buckets(self) -> None:
        """Let DDP put its buckets into their final order before the first update.

        DDP orders its buckets by the first backward pass, and so sums gradients in another order from the second on.
        A resumed run would sum its first update differently from the run it continues; after this pass neither does.
        """
        buffers = {name: buffer.clone() for name, buffer in self.model.named_buffers()}
        arrived: List[Any] = []
        hooks = [weight.register_hook(_note(arrived, weight)) for weight in _trained(self.model)]
        self._seed_device(micro_batch_seed(self.parts.settings.seed, 0, 0))
        try_micro_batch(self, self.wrapped).backward()
        for hook in hooks:
            hook.remove()
        arrived[-1].register_hook(self._note_last_gradient)
        restore_buffers(self.model, buffers)
        self.model.zero_grad(set_to_none=True)

    def _note_last_gradient(self, gradient: Any) -> None:  # noqa: ARG002 - torch hands it to every hook
        self._last_gradient_at = time.perf_counter()


def _trained(model: Any) -> List[Any]:
    return [weight for weight in model.parameters() if weight.requires_grad]


def _note(arrived: List[Any], weight: Any) -> Any:
    return lambda _gradient: arrived.append(weight)
