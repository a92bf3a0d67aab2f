"""identity_loss, and finding the one loss of a forward pass."""

from __future__ import annotations

from typing import Any, List

from poptorch.errors import Error

_marked: List[List[Any]] = []
_REDUCTIONS = {"sum": lambda x: x.sum(), "mean": lambda x: x.mean(), "none": lambda x: x}


def identity_loss(x: Any, reduction: str) -> Any:
    """Return `x` reduced by "sum", "mean" or "none", and mark it as what the backward pass begins from."""
    if reduction not in _REDUCTIONS:
        raise AssertionError("identity_loss knows %s, and not %r" % (", ".join(_REDUCTIONS), reduction))
    loss = _REDUCTIONS[reduction](x)
    if _marked:
        _marked[-1].append(loss)
    return loss


class marked_losses:  # noqa: N801 - used as a context, like a function
    """While it lasts, gathers what identity_loss marks."""

    def __enter__(self) -> List[Any]:
        _marked.append([])
        return _marked[-1]

    def __exit__(self, *_error: Any) -> None:
        _marked.pop()


def the_loss(marked: List[Any], outputs: List[Any]) -> Any:
    """Return the loss of a forward pass: the marked one, else the only scalar among `outputs` with a gradient.

    Raises Error where there is none, or more than one that don't follow from each other.
    """
    found = [loss for loss in marked if loss.requires_grad] or [out for out in outputs if _is_scalar(out)]
    if not found:
        raise Error("the model must return a loss: mark it with poptorch.identity_loss")
    last = found[-1]
    if not all(_follows(last, earlier) for earlier in found[:-1]):
        raise Error(
            "%d losses don't follow from each other: combine them, and mark that with identity_loss" % len(found)
        )
    return last


def _is_scalar(tensor: Any) -> bool:
    return bool(tensor.dim() == 0 and tensor.requires_grad)


def _follows(later: Any, earlier: Any) -> bool:
    """Return whether `later` was computed from `earlier`."""
    wanted, seen, open_nodes = earlier.grad_fn, set(), [later.grad_fn]
    while open_nodes:
        node = open_nodes.pop()
        if node is wanted:
            return True
        if node is not None and node not in seen:
            seen.add(node)
            open_nodes += [before for before, _ in node.next_functions]
    return False
