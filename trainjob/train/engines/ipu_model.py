"""The task's model as an IPU runs it: normalised on the device, with loss and metrics, split where the task says."""

from __future__ import annotations

from typing import Any, Callable, List, Optional, Tuple

import torch
from torch import nn

from trainjob.contract.errors import UserError
from trainjob.train import nested
from trainjob.train.tasks.base import Task

Normalise = Callable[[Any, torch.dtype], Any]


class OnDevice(nn.Module):
    """Inputs as they cross to the device → outputs; with targets: the loss and the metrics of the micro batch."""

    def __init__(self, model: nn.Module, task: Task, normalise: Optional[Normalise], identity_loss: Any) -> None:
        super().__init__()
        self.model = model
        # A function, and not the task itself: what copies a model must not copy what a task may hold.
        self._judge = _judge(task, identity_loss)
        self._normalise = normalise  # None: done on the host
        self._dtype = next(model.parameters()).dtype

    def forward(self, inputs: Any, targets: Any = None) -> Any:
        """Return the outputs, or with `targets` loss and metrics, metrics in the order of their names."""
        if self._normalise is not None:
            inputs = self._normalise(inputs, self._dtype)
        outputs = self.model(nested.convert(self._as_weights, inputs))
        if targets is None:
            return outputs
        return self._judge(outputs, targets)

    def _as_weights(self, tensor: Any) -> Any:
        # 16-bit inputs of a 32-bit model: half the bytes cross.
        return tensor.to(self._dtype) if tensor.is_floating_point() else tensor


def _judge(task: Task, identity_loss: Any) -> Callable[[Any, Any], Tuple[Any, ...]]:
    def judge(outputs: Any, targets: Any) -> Tuple[Any, ...]:
        loss = identity_loss(task.loss(outputs, targets), reduction="mean")
        metrics = task.metrics(outputs, targets)
        return (loss, *[metrics[name] for name in sorted(metrics)])

    return judge


def types(precision: str) -> Tuple[torch.dtype, torch.dtype]:
    """Return the types of inputs and weights. Raises UserError for a precision that IPUs don't have."""
    known = {"16": torch.float16, "32": torch.float32}
    inputs, _, weights = precision.partition(".")
    if inputs not in known or weights not in known or (inputs, weights) == ("32", "16"):
        raise UserError("precision %s is not one of the IPU's: it has 16.16, 16.32 and 32.32" % precision)
    return known[inputs], known[weights]


def split(poptorch: Any, model: nn.Module, task: Task, ipus: int) -> None:
    """Begin IPU 1 and those after it at the layers that the task names. Raises UserError where it names others."""
    names: List[str] = list(getattr(task, "split_points", ()))
    if ipus == 1:
        return
    if len(names) != ipus - 1:
        raise UserError(
            "a model on %d IPUs has %d split points, and the task's split_points are %s: run it on %d"
            % (ipus, ipus - 1, ", ".join(names) or "none", len(names) + 1)
        )
    for number, name in enumerate(names, 1):
        above, _, last = name.rpartition(".")
        parent = model.get_submodule(above) if above else model
        setattr(parent, last, poptorch.BeginBlock(getattr(parent, last), ipu_id=number))
