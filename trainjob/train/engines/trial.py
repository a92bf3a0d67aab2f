"""One micro batch through the model before anything is trained: what would fail or hang later is refused by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, List

import torch

from trainjob.contract.errors import UserError
from trainjob.train import nested

if TYPE_CHECKING:
    from trainjob.train.engines.step import TorchEngine


def parameters_without_gradient(engine: "TorchEngine") -> List[str]:
    """Return the names of parameters that one backward pass leaves without a gradient.

    Buffers and gradients are as before afterwards. Raises UserError where the loss is no scalar with a gradient.
    """
    buffers = {name: buffer.clone() for name, buffer in engine.model.named_buffers()}
    try_micro_batch(engine, engine.model).backward()
    unused = [name for name, weight in engine.model.named_parameters() if weight.requires_grad and weight.grad is None]
    restore_buffers(engine.model, buffers)
    engine.model.zero_grad(set_to_none=True)
    return unused


def try_micro_batch(engine: "TorchEngine", model: Any) -> Any:
    """Return the loss of the trial micro batch, through `model`."""
    inputs, targets = engine.trial_batch()
    outputs = model(inputs)
    loss = engine.parts.task.loss(outputs, targets)
    if not isinstance(loss, torch.Tensor) or loss.dim() != 0 or not loss.requires_grad:
        raise UserError(
            "the task's loss must be a tensor of no dimensions with a gradient, and is %s (outputs: %s; targets: %s)"
            % (nested.describe(loss), nested.describe(outputs), nested.describe(targets))
        )
    engine.metric_names = sorted(engine.parts.task.metrics(outputs, targets))
    return loss


def restore_buffers(model: torch.nn.Module, buffers: Any) -> None:
    """Give the model's buffers their values back."""
    with torch.no_grad():
        for name, buffer in model.named_buffers():
            if name in buffers:
                buffer.copy_(buffers[name])


def refuse_unused(names: List[str]) -> UserError:
    """Return the error that names the parameters without a gradient."""
    shown = ", ".join(names[:5]) + (" and %d more" % (len(names) - 5) if len(names) > 5 else "")
    return UserError(
        "every parameter must get a gradient, and %d get none: %s. Use them in forward, give them "
        "requires_grad=False, or allow it with --allow-unused-parameters" % (len(names), shown)
    )
