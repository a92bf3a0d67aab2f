"""identity_loss, and the one loss of a forward pass: what identity_loss marks, or a loss function of torch computes."""

from __future__ import annotations

from functools import wraps
from typing import Any, Callable, Dict, Iterator, List, Optional, Set, Tuple

import torch
from trainjob_standins.announce import warn

from poptorch.errors import Error

_marked: List[List[Any]] = []
_FUNCTIONS = (
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "cosine_embedding_loss",
    "cross_entropy",
    "ctc_loss",
    "hinge_embedding_loss",
    "huber_loss",
    "kl_div",
    "l1_loss",
    "margin_ranking_loss",
    "mse_loss",
    "nll_loss",
    "poisson_nll_loss",
    "smooth_l1_loss",
    "soft_margin_loss",
    "triplet_margin_loss",
)
_REDUCTIONS = {"sum": lambda x: x.sum(), "mean": lambda x: x.mean(), "none": lambda x: x}


def identity_loss(x: torch.Tensor, reduction: str) -> Any:
    """Return `x` reduced by "sum", "mean" or "none", and mark it as what the backward pass begins from."""
    if reduction not in _REDUCTIONS:
        raise AssertionError("identity_loss knows %s, and not %r" % (", ".join(_REDUCTIONS), reduction))
    return _mark(_REDUCTIONS[reduction](x))


def _mark(loss: torch.Tensor) -> Any:
    if _marked:
        _marked[-1].append(loss)
    return loss


class marked_losses:  # noqa: N801 - used as a context, like a function
    """While it lasts, gathers what identity_loss marks, and what torch's loss functions return.

    `each` converts the result of any function of torch: a mode of torch sees them all, also a loss function that the
    program has taken from torch.nn.functional before. torch before 2.0 has no such mode: its loss functions are
    replaced where they stand, and a loss that was taken before is found by the name of its operation.
    """

    def __init__(self, each: Callable[[Any], Any]) -> None:
        self._functions = {name: getattr(torch.nn.functional, name) for name in _FUNCTIONS}
        self._mode: Any = None if _Mode is None else _Mode(set(self._functions.values()), each)

    def __enter__(self) -> List[Any]:
        _marked.append([])
        if self._mode is not None:
            self._mode.__enter__()
        else:
            for name, function in self._functions.items():
                setattr(torch.nn.functional, name, _marking(function))
        return _marked[-1]

    def __exit__(self, *error: object) -> None:
        if self._mode is not None:
            self._mode.__exit__(*error)
        else:
            for name, function in self._functions.items():
                setattr(torch.nn.functional, name, function)
        _marked.pop()


def _marking(function: Callable[..., torch.Tensor]) -> Any:
    @wraps(function)
    def marks(*args: object, **kwargs: object) -> Any:
        return _mark(function(*args, **kwargs))

    return marks


_Mode: Any = None
if hasattr(torch.overrides, "TorchFunctionMode"):

    class _Mode(torch.overrides.TorchFunctionMode):  # type: ignore[no-redef] # torch before 2.0 lacks the base
        """Sees every function of torch that the program calls."""

        def __init__(self, losses: Set[Any], each: Callable[[Any], Any]) -> None:
            super().__init__()
            self._losses, self._each = losses, each

        def __torch_function__(
            self, func: Any, types: object, args: Tuple[object, ...] = (), kwargs: Optional[Dict[str, Any]] = None
        ) -> Any:
            result = self._each(func(*args, **(kwargs or {})))
            return _mark(result) if func in self._losses else result


def the_loss(marked: List[torch.Tensor], outputs: List[torch.Tensor]) -> Any:
    """Return the loss of a forward pass: the last marked one. What is only computed by other operations is none.

    A loss that depends on no weight has no gradient. Raises Error if there is no loss, or more than one that don't
    follow from each other.
    """
    found = [loss for loss in marked if loss.requires_grad] or [out for out in outputs if _has_loss(out)]
    if not found and marked:
        return marked[-1]
    if not found:
        raise Error(
            "Couldn't find a loss in graph! What other operations compute than torch.nn.functional's loss functions "
            "must be marked as the loss with poptorch.identity_loss"
        )
    last = found[-1]
    if not all(_follows(last, earlier) for earlier in found[:-1]):
        raise Error(
            "Multiple independent losses found in graph. Graph must have one final loss. Wrap final graph loss in "
            "poptorch.identity_loss. (%d losses don't follow from each other.)" % len(found)
        )
    if not any(out.grad_fn is last.grad_fn for out in outputs) and any(_follows(out, last) for out in outputs):
        warn(
            "The model does not return its loss as such: gradients are those of the loss function or identity_loss, "
            "and not of what is computed from it. Mark the final loss with poptorch.identity_loss"
        )
    return last


def _has_loss(tensor: torch.Tensor) -> bool:
    """Return whether a scalar comes from a loss function: one that the program has imported by its name."""
    is_scalar = tensor.dim() == 0 and tensor.requires_grad
    return bool(is_scalar and any("Loss" in type(node).__name__ for node in _graph(tensor)))


def _follows(later: torch.Tensor, earlier: torch.Tensor) -> bool:
    """Return whether `later` was computed from `earlier`."""
    return any(node is earlier.grad_fn for node in _graph(later))


def _graph(tensor: torch.Tensor) -> Iterator[Any]:
    """Yield the operations that `tensor` was computed by, the last one first."""
    seen: Set[Any] = set()
    open_nodes = [tensor.grad_fn]
    while open_nodes:
        node = open_nodes.pop()
        if node is not None and node not in seen:
            yield node
            seen.add(node)
            open_nodes += [before for before, _ in node.next_functions]
