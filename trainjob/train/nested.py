"""Values made of tensors: a tensor, or tuples, lists and dictionaries of such values, as a user's Dataset may give."""

from __future__ import annotations

from typing import Any, Callable, Iterator, List

import torch


def convert(change: Callable[[Any], Any], value: Any) -> Any:
    """Return `value` with `change` applied to every tensor; what is no tensor stays as it is."""
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, dict):
        return {name: convert(change, item) for name, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*[convert(change, item) for item in value])
    if isinstance(value, (list, tuple)):
        return type(value)([convert(change, item) for item in value])
    return value


def tensors(value: Any) -> Iterator[Any]:
    """Yield every tensor of `value`."""
    found: List[Any] = []
    convert(found.append, value)
    yield from found


def rows(value: Any, start: int, end: int) -> Any:
    """Return samples `start` to `end` of every tensor of `value`."""
    if isinstance(value, torch.Tensor):  # the usual case, at a third of the time
        return value[start:end]
    return convert(lambda tensor: tensor[start:end], value)


def count(value: Any) -> int:
    """Return the number of samples in `value`: the first dimension of its first tensor."""
    for tensor in tensors(value):
        return int(tensor.shape[0])
    return 0


def describe(value: Any) -> str:
    """Return the shape and type of `value` in one line, for an error message."""
    parts = ["%s %s" % (tuple(tensor.shape), str(tensor.dtype).replace("torch.", "")) for tensor in tensors(value)]
    return ", ".join(parts) or type(value).__name__
