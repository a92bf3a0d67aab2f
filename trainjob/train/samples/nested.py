"""Values made of tensors: a tensor, or tuples, lists and dictionaries of such values, as Datasets give them."""

from __future__ import annotations

from typing import Any, Callable, Iterator, List

import torch

# A tensor, or tuples, lists and dictionaries that hold tensors, to any depth; anything else in them is left alone.
# No type of Python 3.8 says that of a user's own named tuples.
Nested = Any


def convert(change: Callable[[torch.Tensor], object], value: Nested) -> Nested:
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


def tensors(value: Nested) -> Iterator[torch.Tensor]:
    """Yield every tensor of `value`."""
    collected: List[torch.Tensor] = []
    convert(collected.append, value)
    yield from collected


def rows(value: Nested, start: int, end: int) -> Nested:
    """Return samples `start` to `end` of every tensor of `value`."""
    if isinstance(value, torch.Tensor):  # the usual case, in a third of the time
        return value[start:end]
    return convert(lambda tensor: tensor[start:end], value)


def count(value: Nested) -> int:
    """Return the number of samples in `value`: the first dimension of its first tensor."""
    for tensor in tensors(value):
        return int(tensor.shape[0])
    return 0


def describe(value: Nested) -> str:
    """Return the shapes and types of `value` in one line, for an error message."""
    parts = ["%s %s" % (tuple(tensor.shape), str(tensor.dtype).replace("torch.", "")) for tensor in tensors(value)]
    return ", ".join(parts) or type(value).__name__
