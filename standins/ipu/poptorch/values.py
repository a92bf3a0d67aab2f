"""Values made of tensors: what goes into a model and comes out of it."""

from __future__ import annotations

from typing import Any, Callable, Iterator, List

import torch


def convert(change: Callable[[Any], Any], value: object) -> Any:
    """Return `value` with `change` applied to every tensor."""
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, dict):
        return type(value)((name, convert(change, item)) for name, item in value.items())
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*[convert(change, item) for item in value])
    if isinstance(value, (list, tuple)):
        return type(value)(convert(change, item) for item in value)
    return value


def flat(value: object) -> List[Any]:
    """Return the tensors of `value`, in order."""
    found: List[Any] = []
    convert(found.append, value)
    return found


def like(value: object, tensors: Iterator[object]) -> Any:
    """Return `value` with its tensors replaced by the next ones of `tensors`."""
    return convert(lambda _tensor: next(tensors), value)
