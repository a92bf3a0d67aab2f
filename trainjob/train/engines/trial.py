"""One micro batch through the model before anything is trained: what would fail or hang later is refused by name."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, NamedTuple

import torch

from trainjob.contract.errors import UserError
from trainjob.train import nested
from trainjob.train.blame import add_hint
from trainjob.train.tasks.base import Task


class Tried(NamedTuple):
    """What a trial found out."""

    metric_names: List[str]
    unused: List[str]  # parameters that got no gradient
    sparse: bool  # whether some gradients are sparse


def try_out(task: Task, model: torch.nn.Module, inputs: Any, targets: Any) -> Tried:
    """Return what one forward and backward pass of a micro batch shows; weights, buffers, gradients stay as they were.

    Raises UserError where loss or metrics have a form that can't be trained on.
    """
    buffers = kept_buffers(model)
    outputs = model(inputs)
    loss = checked_loss(task, outputs, targets)
    with torch.no_grad():
        metrics = _checked_metrics(task.metrics(outputs, targets), outputs, targets)
    loss.backward()
    unused = [name for name, weight in model.named_parameters() if weight.requires_grad and weight.grad is None]
    sparse = any(weight.grad is not None and weight.grad.is_sparse for weight in model.parameters())
    model.zero_grad(set_to_none=True)
    restore_buffers(model, buffers)
    return Tried(sorted(metrics), unused, sparse)


def checked_loss(task: Task, outputs: Any, targets: Any) -> Any:
    """Return the task's loss. Raises UserError unless it is one number with a gradient."""
    try:
        loss = task.loss(outputs, targets)
    except Exception as error:
        # Most often because model and loss don't fit: the shapes say so.
        add_hint(error, "outputs: %s; targets: %s" % (nested.describe(outputs), nested.describe(targets)))
        raise
    if not isinstance(loss, torch.Tensor) or loss.dim() != 0 or not loss.requires_grad:
        raise UserError(
            "the task's loss must be a tensor of no dimensions with a gradient, and is %s (outputs: %s; targets: %s)"
            % (nested.describe(loss), nested.describe(outputs), nested.describe(targets))
        )
    return loss


def _checked_metrics(metrics: Any, outputs: Any, targets: Any) -> Dict[str, Any]:
    wrong = [name for name, value in metrics.items() if torch.as_tensor(value).dim() != 0]
    if wrong:
        raise UserError(
            "the task's metrics must be means over the micro batch, one number each, and %s is %s (outputs: %s; "
            "targets: %s)"
            % (wrong[0], nested.describe(metrics[wrong[0]]), nested.describe(outputs), nested.describe(targets))
        )
    found: Dict[str, Any] = metrics
    return found


def is_repeatable(model: torch.nn.Module, inputs: Callable[[], Any]) -> bool:
    """Return whether the same inputs, the generators seeded the same by `inputs`, give the same outputs twice."""
    return _same_twice(model, inputs, lambda buffers: restore_buffers(model, buffers))


def reads_buffers(model: torch.nn.Module, inputs: Callable[[], Any]) -> bool:
    """Return whether the buffers that one forward pass leaves change the outputs of the next."""
    return not _same_twice(model, inputs, lambda _buffers: None)


def _same_twice(model: torch.nn.Module, inputs: Callable[[], Any], between: Callable[[Dict[str, Any]], None]) -> bool:
    buffers = kept_buffers(model)
    with torch.no_grad():
        first = list(nested.tensors(model(inputs())))
        between(buffers)
        second = list(nested.tensors(model(inputs())))
        restore_buffers(model, buffers)
    return all(torch.equal(one, other) for one, other in zip(first, second))


def kept_buffers(model: torch.nn.Module) -> Dict[str, Any]:
    """Return copies of the model's buffers."""
    return {name: buffer.clone() for name, buffer in model.named_buffers()}


def restore_buffers(model: torch.nn.Module, buffers: Dict[str, Any]) -> None:
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
