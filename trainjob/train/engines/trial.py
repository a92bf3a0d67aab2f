"""Tries one micro batch before training, so that what would fail or hang later is refused with a clear message."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, NamedTuple

import torch

from trainjob.contract.errors import UserError
from trainjob.train.engines.base import Number
from trainjob.train.recording.state import Tensors
from trainjob.train.samples import nested
from trainjob.train.samples.nested import Nested
from trainjob.train.tasks.base import Task

# The attribute of an error that passes through with what its description is to add.
HINT = "_trainjob_hint"


class Tried(NamedTuple):
    """The findings of a trial."""

    metric_names: List[str]
    unused: List[str]  # parameters without a gradient
    sparse: bool  # whether some gradients are sparse


def try_out(task: Task, model: torch.nn.Module, inputs: Nested, targets: Nested) -> Tried:
    """Return what a forward and a backward pass of one micro batch show; weights, buffers and gradients are restored.

    Raises UserError if loss or metrics have the wrong form.
    """
    buffers = kept_buffers(model)
    outputs = model(inputs)
    loss = checked_loss(task, outputs, targets)
    with torch.no_grad():
        metrics: Dict[str, Number] = {**task.metrics(outputs, targets)}
    wrong = [name for name, value in metrics.items() if torch.as_tensor(value).dim() != 0]
    if wrong:
        raise UserError(
            "the task's metrics must be means over the micro batch, one number each, and %s is %s (outputs: %s; "
            "targets: %s)"
            % (wrong[0], nested.describe(metrics[wrong[0]]), nested.describe(outputs), nested.describe(targets)),
            "take the mean of each",
        )
    loss.backward()
    unused = [name for name, weight in model.named_parameters() if weight.requires_grad and weight.grad is None]
    sparse = any(weight.grad is not None and weight.grad.is_sparse for weight in model.parameters())
    model.zero_grad(set_to_none=True)
    restore_buffers(model, buffers)
    return Tried(sorted(metrics), unused, sparse)


def checked_loss(task: Task, outputs: Nested, targets: Nested) -> torch.Tensor:
    """Return the task's loss. Raises UserError unless it is one number with a gradient."""
    try:
        loss: Any = task.loss(outputs, targets)  # a user's task may return anything
    except Exception as error:
        # Most often the model and the loss don't fit, which the shapes show.
        shapes = nested.describe(outputs), nested.describe(targets)
        setattr(error, HINT, " (outputs: %s; targets: %s)" % shapes)
        raise
    if not isinstance(loss, torch.Tensor) or loss.dim() != 0 or not loss.requires_grad:
        raise UserError(
            "the task's loss must be a tensor of no dimensions with a gradient, and is %s (outputs: %s; targets: %s)"
            % (nested.describe(loss), nested.describe(outputs), nested.describe(targets)),
            "return the mean over the micro batch, computed from the outputs by torch",
        )
    return loss


def is_repeatable(model: torch.nn.Module, inputs: Callable[[], Nested]) -> bool:
    """Return whether the same inputs give the same outputs twice; `inputs` seeds the generators each time."""
    return _same_twice(model, inputs, lambda buffers: restore_buffers(model, buffers))


def reads_buffers(model: torch.nn.Module, inputs: Callable[[], Nested]) -> bool:
    """Return whether the buffers that one forward pass leaves behind change the outputs of the next."""
    return not _same_twice(model, inputs, lambda _buffers: None)


def _same_twice(model: torch.nn.Module, inputs: Callable[[], Nested], between: Callable[[Tensors], None]) -> bool:
    buffers = kept_buffers(model)
    with torch.no_grad():
        first = list(nested.tensors(model(inputs())))
        between(buffers)
        second = list(nested.tensors(model(inputs())))
        restore_buffers(model, buffers)
    return all(torch.equal(one, other) for one, other in zip(first, second))


def kept_buffers(model: torch.nn.Module) -> Tensors:
    """Return copies of the model's buffers."""
    return {name: buffer.clone() for name, buffer in model.named_buffers()}


def restore_buffers(model: torch.nn.Module, buffers: Tensors) -> None:
    """Restore the values of the model's buffers."""
    with torch.no_grad():
        for name, buffer in model.named_buffers():
            if name in buffers:
                buffer.copy_(buffers[name])


def refuse_unused(names: List[str]) -> UserError:
    """Return the error that names the parameters without a gradient."""
    shown = ", ".join(names[:5]) + (" and %d more" % (len(names) - 5) if len(names) > 5 else "")
    return UserError(
        "every parameter must get a gradient, and %d get none: %s." % (len(names), shown),
        "Use them in forward, set requires_grad=False on them, or allow it with --allow-unused-parameters",
    )
